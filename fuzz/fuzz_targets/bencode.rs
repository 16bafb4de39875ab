//! Any bytes are a value or an error; a value's parts can all be walked.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_bittorrent::bencode::Value;

fn walk(value: Value<'_>) {
    let _ = (value.as_int(), value.as_bytes());
    value.items().for_each(walk);
    value.entries().for_each(|(_, value)| walk(value));
}

fuzz_target!(|data: &[u8]| {
    if let Ok(value) = Value::parse(data) {
        walk(value);
    }
});
