#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(violation) = stockade_providers::fuzz::opencode_stream(bytes) {
        panic!("{violation}");
    }
});
