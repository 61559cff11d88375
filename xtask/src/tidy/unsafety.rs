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
    concat!("[unsafe", "("),
    concat!("(unsafe", "_code"),
];

pub(super) fn check(house: &House, findings: &mut Findings) -> Result<()> {
    for file in house.sources().filter(|f| !f.starts_with(HOME)) {
        for (number, line) in (1..).zip(repository::read(file)?.lines()) {
            if finds_it(line) {
                findings.add(format!("{file}:{number}: `unsafe` outside {HOME}"));
            }
        }
    }
    Ok(())
}

fn finds_it(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    FORMS.iter().any(|form| code.contains(form))
}

#[cfg(test)]
mod tests {
    use super::finds_it;

    #[test]
    fn finds_code_and_no_comments() {
        assert!(finds_it(concat!("let x = unsafe", " { *p };")));
        assert!(finds_it(concat!("#[unsafe", "(no_mangle)]")));
        assert!(finds_it(concat!("#![expect(unsafe", "_code)]")));
        assert!(!finds_it(concat!("// unsafe", " { }")));
        assert!(!finds_it("An unsafe place."));
    }
}
