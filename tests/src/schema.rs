//! The schemas of receipts, and documents held against them.

use std::{path::Path, sync::LazyLock};

use jsonschema::Validator;
use serde_json::Value;

/// Stockade's own receipts: made from the types, and kept up to date by `cargo xtask tidy`.
pub static OWN_RECEIPT: LazyLock<Validator> = LazyLock::new(|| compiled("receipt.schema.json"));

/// What readers of pstack-runner's receipts rely on.
pub static PSTACK_RECEIPT: LazyLock<Validator> = LazyLock::new(|| compiled("pstack-receipt.schema.json"));

fn compiled(name: &str) -> Validator {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference").join(name);
    let schema = crate::run::read_json(&path);
    jsonschema::meta::validate(&schema).unwrap_or_else(|e| panic!("{name} is no schema: {e}"));
    jsonschema::validator_for(&schema).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Asserts that a document is valid, showing every place where it is not.
#[track_caller]
pub fn assert_valid(schema: &Validator, document: &Value) {
    let found: Vec<String> =
        schema.iter_errors(document).map(|e| format!("{} at `{}`", e, e.instance_path())).collect();
    assert!(found.is_empty(), "{}\n{document:#}", found.join("\n"));
}
