//! Licences of everything that is built, against the list in `deny.toml`.

use anyhow::{Context, Result};
use toml::Table;

use super::{Findings, House};
use crate::repository;

/// A list of strings in `deny.toml`.
pub(super) fn deny_list(section: &str, key: &str) -> Result<Vec<String>> {
    let file: Table = repository::read("deny.toml")?.parse().context("reading deny.toml")?;
    let list = file.get(section).and_then(|s| s.get(key)).and_then(|l| l.as_array());
    let list = list.with_context(|| format!("deny.toml: no [{section}] {key}"))?;
    let name = |entry: &toml::Value| {
        let named = entry.get("crate").unwrap_or(entry).as_str();
        named.map(str::to_owned).with_context(|| format!("deny.toml: [{section}] {key}: {entry} is no name"))
    };
    list.iter().map(name).collect()
}

pub(super) fn check(house: &House, findings: &mut Findings) -> Result<()> {
    let allowed = deny_list("licenses", "allow")?;
    for package in &house.metadata.packages {
        let name = format!("{} {}", package.name, package.version);
        match &package.license {
            None => findings.add(format!("{name}: states no licence")),
            Some(licence) if !is_allowed(licence, &allowed) => {
                findings.add(format!("{name}: licence `{licence}` is not on the list of deny.toml"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Whether an SPDX expression can be fulfilled by allowed licences alone. An exception (`WITH`) only gives more.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    // Crates from before SPDX expressions write `MIT/Apache-2.0`.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    let fulfilled = parser.any();
    fulfilled && parser.words.is_empty()
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Parser<'_> {
    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = self.words.get(1..).unwrap_or_default();
        }
        found
    }

    fn any(&mut self) -> bool {
        let mut fulfilled = self.all();
        while self.take("OR") {
            fulfilled |= self.all();
        }
        fulfilled
    }

    fn all(&mut self) -> bool {
        let mut fulfilled = self.one();
        while self.take("AND") {
            fulfilled &= self.one();
        }
        fulfilled
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            let fulfilled = self.any();
            return self.take(")") && fulfilled;
        }
        let Some((name, rest)) = self.words.split_first() else { return false };
        self.words = rest;
        if self.take("WITH") {
            self.words = self.words.get(1..).unwrap_or_default();
        }
        self.allowed.iter().any(|a| a == name)
    }
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn expressions_are_read_as_spdx_means_them() {
        let allowed = ["MIT", "Apache-2.0"].map(str::to_owned);
        for (expression, expected) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("(MIT OR GPL-3.0) AND Apache-2.0", true),
            ("(MIT OR GPL-3.0) AND BSD-3-Clause", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
            ("GPL-3.0", false),
            ("", false),
            ("(MIT", false),
            ("MIT MIT", false),
        ] {
            assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
        }
    }
}
