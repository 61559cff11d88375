//! `unsafe` stands in one crate only.

use anyhow::Result;

use super::{Findings, House};
use crate::repository;

const HOME: &str = "crates/stockade-fence/";
/// What follows the keyword where it is code. Written in two parts, so that this file does not find itself.
const FORMS: [&str; 7] = [
    concat!("unsafe", " {"),
    concat!("unsafe", " fn"),
    concat!("unsafe", " impl"),
    concat!("unsafe", " trait"),
    concat!("unsafe", " extern"),
    concat!("unsafe", "("),
    concat!("(unsafe", "_code"),
];

pub(super) fn check(house: &House, findings: &mut Findings) -> Result<()> {
    for file in house.sources().filter(|f| !f.starts_with(HOME)) {
        for (number, line) in (1..).zip(repository::read(file)?.lines()) {
            if has_unsafe(line) {
                findings.add(format!("{file}:{number}: `unsafe` outside {HOME}"));
            }
        }
    }
    Ok(())
}

fn has_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    FORMS.iter().any(|form| code.contains(form))
}

#[cfg(test)]
mod tests {
    use super::has_unsafe;

    #[test]
    fn finds_code_and_no_comments() {
        assert!(has_unsafe(concat!("let x = unsafe", " { *p };")));
        assert!(has_unsafe(concat!("#[unsafe", "(no_mangle)]")));
        assert!(has_unsafe(concat!("#![expect(unsafe", "_code)]")));
        assert!(!has_unsafe(concat!("// unsafe", " { }")));
        assert!(!has_unsafe("An unsafe place."));
    }
}
