#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(violation) = stockade_gateway::fuzz::proxy_request(bytes) {
        panic!("{violation}");
    }
});
