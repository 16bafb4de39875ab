//! Metadata a stranger made: parsed or refused, and never out of its own bounds.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use weir_bittorrent::{Block, Extensions, Info, InfoHash, MetadataMessage};

fuzz_target!(|data: &[u8]| {
    // The right name for these bytes, so that the hash does not stop the parser.
    let name = <[u8; 20]>::from(<sha1::Sha1 as sha1::Digest>::digest(data));
    if let Ok(info) = Info::parse(data, InfoHash(name)) {
        for index in [0, 1, info.piece_count().saturating_sub(1), u32::MAX] {
            let len = info.piece_len(index);
            assert_eq!(len.is_some(), index < info.piece_count());
            let whole = Block { index, begin: 0, len: len.unwrap_or(1) };
            assert_eq!(info.offset_of(whole).is_some(), len.is_some());
            let past = Block { index, begin: len.unwrap_or(0), len: 1 };
            assert!(info.offset_of(past).is_none());
        }
    }
    let payload = Bytes::copy_from_slice(data);
    let _ = MetadataMessage::parse(&payload);
    Extensions::default().update(data);
});
