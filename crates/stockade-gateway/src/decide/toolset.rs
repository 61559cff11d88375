//! Comparing the tools of a request with the planned sets.

use std::collections::BTreeSet;

/// The class whose set of tools is exactly the offered one, or how the offer differs from the nearest set.
pub(super) fn classify<'a>(
    classes: &'a [(String, Vec<String>)],
    offered: &[String],
) -> Result<(usize, &'a str), String> {
    let mut seen = BTreeSet::new();
    let twice: Vec<&str> = offered.iter().map(String::as_str).filter(|name| !seen.insert(*name)).collect();
    if !twice.is_empty() {
        return Err(format!("offered more than once: {}", twice.join(", ")));
    }
    let sets =
        classes.iter().map(|(name, tools)| (name, tools.iter().map(String::as_str).collect::<BTreeSet<_>>()));
    let mut nearest = None;
    for (index, (name, planned)) in sets.enumerate() {
        let unexpected: Vec<&str> = seen.difference(&planned).copied().collect();
        let missing: Vec<&str> = planned.difference(&seen).copied().collect();
        let distance = unexpected.len() + missing.len();
        if distance == 0 {
            return Ok((index, name));
        }
        if nearest.as_ref().is_none_or(|(least, _)| distance < *least) {
            nearest = Some((distance, describe(name, &unexpected, &missing)));
        }
    }
    Err(nearest.map_or_else(|| "no request class is planned".to_owned(), |(_, text)| text))
}

fn describe(class: &str, unexpected: &[&str], missing: &[&str]) -> String {
    let list = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("against class {class}: unexpected: {}; missing: {}", list(unexpected), list(missing))
}
