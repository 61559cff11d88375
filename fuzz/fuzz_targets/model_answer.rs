#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(violation) = stockade_gateway::fuzz::model_answer(bytes) {
        panic!("{violation}");
    }
});
