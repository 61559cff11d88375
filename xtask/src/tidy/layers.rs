//! Dependency direction: a crate depends on lower tiers only, never on a neighbour.

use super::{Findings, House};

/// Every crate of the house with its tier. A new crate gets a place here first.
const TIERS: [(&str, u8); 12] = [
    ("stockade-core", 0),
    ("stockade-fence", 1),
    ("stockade-gateway", 1),
    ("stockade-git", 1),
    ("stockade-journal", 1),
    ("stockade-model", 1),
    ("stockade-pins", 1),
    ("stockade-providers", 1),
    ("stockade-lane", 2),
    ("stockade-rehearsal", 3),
    ("stockade", 4),
    ("xtask", OUTSIDE),
];
/// May depend on everything, and nothing on it.
const OUTSIDE: u8 = u8::MAX;
const TESTS: &str = "stockade-tests";

pub(super) fn check(house: &House, findings: &mut Findings) {
    for package in house.metadata.workspace_packages() {
        let name = package.name.as_str();
        let Some(own) = tier(name) else {
            findings.add(format!("{name}: has no tier in xtask/src/tidy/layers.rs"));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|d| d.path.is_some()) {
            if let Some(problem) = problem(own, &dependency.name) {
                findings.add(format!("{name}: depends on {}, {problem}", dependency.name));
            }
        }
    }
}

fn tier(name: &str) -> Option<u8> {
    if name == TESTS {
        return Some(OUTSIDE);
    }
    TIERS.iter().find(|(known, _)| *known == name).map(|(_, tier)| *tier)
}

fn problem(own: u8, dependency: &str) -> Option<&'static str> {
    let theirs = tier(dependency)?;
    if theirs == OUTSIDE {
        Some("and nothing may depend on that")
    } else if theirs == own {
        Some("a crate of its own tier: the tier above joins them")
    } else if theirs > own {
        Some("a crate of a higher tier")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lower_tiers_may_be_used() {
        let of = |name| tier(name).unwrap();
        assert_eq!(problem(of("stockade-lane"), "stockade-core"), None);
        assert_eq!(problem(of("stockade"), "stockade-fence"), None);
        assert_eq!(problem(of("stockade-tests"), "stockade"), None);
        assert!(problem(of("stockade-fence"), "stockade-gateway").is_some());
        assert!(problem(of("stockade-core"), "stockade-lane").is_some());
        assert!(problem(of("stockade"), "stockade-tests").is_some());
        assert!(problem(of("xtask"), "stockade-tests").is_some());
    }
}
