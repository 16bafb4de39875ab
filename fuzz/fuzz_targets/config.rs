//! An operator's text: a configuration, a size or a network that reads back as it is
//! shown, or a refusal.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    weir::fuzzing::config(text);
    weir_gateway::fuzzing::network(text);
});
