//! However a stream is cut, the framer yields the same bytes in the same order.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use weir_bittorrent::Framer;

/// How many items come out, and whether it ends in an error.
fn items(stream: &[u8], chunk: usize) -> (usize, bool) {
    let mut framer = Framer::new();
    let mut count = 0;
    for part in stream.chunks(chunk) {
        framer.push(Bytes::copy_from_slice(part));
        loop {
            match framer.poll_item() {
                Ok(Some(_)) => count += 1,
                Ok(None) => break,
                Err(_) => return (count, true),
            }
        }
    }
    (count, false)
}

fuzz_target!(|data: &[u8]| {
    let Some((first, stream)) = data.split_first() else { return };
    let (_, whole_fails) = items(stream, stream.len().max(1));
    let (_, cut_fails) = items(stream, usize::from(*first) + 1);
    assert_eq!(whole_fails, cut_fails);
});
