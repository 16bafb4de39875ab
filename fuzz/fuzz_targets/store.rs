//! A store whose index files somebody has damaged or forged opens or is refused;
//! it never panics, and reads of it end.
#![no_main]

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use weir_ranges::{ByteRange, ObjectId};
use weir_store::disk::{Disk, File};
use weir_store::{Options, Store, Tuning};

#[derive(Debug, Default)]
struct Memory(Mutex<HashMap<File, Vec<u8>>>);

impl Disk for Memory {
    fn len(&self, file: File) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().get(&file).map_or(0, Vec::len) as u64)
    }

    fn read_at(&self, file: File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let files = self.0.lock().unwrap();
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let end = from.checked_add(buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        let all = files.get(&file).map_or(&[][..], Vec::as_slice);
        buf.copy_from_slice(all.get(from..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, file: File, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut files = self.0.lock().unwrap();
        let all = files.entry(file).or_default();
        let from = offset as usize;
        all.resize(all.len().max(from + data.len()), 0);
        all[from..from + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn set_len(&self, file: File, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().entry(file).or_default().resize(len as usize, 0);
        Ok(())
    }

    fn allocate(&self, file: File, len: u64) -> io::Result<()> {
        self.set_len(file, len)
    }

    fn sync(&self, _file: File) -> io::Result<()> {
        Ok(())
    }
}

const CAPACITY: u64 = 8 << 20;

fuzz_target!(|damage: Vec<(u8, u16, Vec<u8>)>| {
    let memory = Arc::new(Memory::default());
    let (memory_bytes, sync_interval) = (1 << 20, Duration::ZERO);
    let options = Options { memory_bytes, sync_interval, ..Options::new("memory", CAPACITY) };
    let open = || Store::open_on(Arc::clone(&memory) as Arc<dyn Disk>, &options, Tuning::default());
    let object = ObjectId::from(7);
    let content: Vec<u8> = (0..100_000_u32).map(|i| i as u8).collect();
    {
        let (store, _) = open().unwrap();
        store.write(object, 0, &[Bytes::from(content.clone())]).unwrap();
        store.sync().unwrap();
    }
    for (file, offset, bytes) in damage {
        let file = File::ALL[usize::from(file) % File::ALL.len()];
        memory.write_at(file, offset.into(), &bytes).unwrap();
    }
    let Ok((store, _)) = open() else { return };
    let range = ByteRange::new(0, content.len() as u64).unwrap();
    for (offset, part) in store.read(object, range).unwrap().parts {
        let from = offset as usize;
        assert_eq!(part, content[from..from + part.len()]);
    }
});
