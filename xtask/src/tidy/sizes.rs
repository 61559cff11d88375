//! Small rooms: a source file over 1,000 lines is two files.

use anyhow::Result;

use super::{Findings, House};
use crate::repository;

const LIMIT: usize = 1_000;
/// Worth another look.
const LOOK_AGAIN: usize = 600;

pub(super) fn check(house: &House, findings: &mut Findings) -> Result<()> {
    for file in house.sources() {
        let lines = repository::read(file)?.lines().count();
        if lines > LIMIT {
            findings.add(format!("{file}: {lines} lines, more than {LIMIT}"));
        } else if lines > LOOK_AGAIN {
            println!("note: {file} has {lines} lines; over {LOOK_AGAIN} is worth another look");
        }
    }
    Ok(())
}
