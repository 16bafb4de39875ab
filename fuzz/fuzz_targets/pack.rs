//! Packs an operator wrote: parsed or refused; what is parsed can be used.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_identify::{Pack, Speaker};

fuzz_target!(|data: (&str, &[u8])| {
    if let Ok(pack) = Pack::parse(data.0) {
        let _ = pack.classify(Speaker::Dialer, data.1);
        let _ = pack.classify(Speaker::Listener, data.1);
    }
});
