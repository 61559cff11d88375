//! The table: what each probe does, which guarantee it tests, and what is expected inside and outside.

use stockade_core::{guarantee::Guarantee, mode::AccessMode};

use crate::errno::errno_name;

use super::acts::Outcome;
use super::fixture::FixtureFacts;
use super::runner::Observed;
use super::{files, limits, network, place, privilege, sanity, secrets, signals, sockets};

/// What a probe must observe inside the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The action fails, by whatever lock.
    Denied,
    /// The action fails with this error number, which shows that this one lock holds.
    DeniedWith(i32),
    /// The action fails where the kernel enforces the limit of processes. Elsewhere the runner watches the number, and
    /// the probe is too short to meet it: nothing is asserted.
    DeniedWhereEnforced,
    /// The action works, on a copy that nobody outside sees: which.
    PrivateCopy(&'static str),
    /// The action works, because an honest tool needs it: for what.
    Needed(&'static str),
}

impl Expected {
    /// Whether an observation is the expected one. An action that hung or crashed shows nothing.
    pub fn is_met_by(self, observed: &Observed, processes: ProcessLimit) -> bool {
        let denied = matches!(observed, Observed::Denied(_) | Observed::KilledBySeccomp);
        match self {
            Self::Denied => denied,
            Self::DeniedWith(errno) => *observed == Observed::Denied(errno),
            Self::DeniedWhereEnforced => match processes {
                ProcessLimit::Enforced => denied,
                ProcessLimit::Watched => denied || *observed == Observed::Allowed,
            },
            Self::PrivateCopy(_) | Self::Needed(_) => *observed == Observed::Allowed,
        }
    }

    /// The word in reports: `denied`, the name of an error number, `allowed`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::DeniedWith(errno) => errno_name(errno),
            Self::DeniedWhereEnforced => "denied where enforced",
            Self::PrivateCopy(_) | Self::Needed(_) => "allowed",
        }
    }

    /// Why it may work.
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::PrivateCopy(reason) | Self::Needed(reason) => Some(reason),
            Self::Denied | Self::DeniedWith(_) | Self::DeniedWhereEnforced => None,
        }
    }
}

/// Where a probe is taken, as far as that decides what must be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What the fence lets happen to the workspace.
    pub mode: AccessMode,
    /// Who stops processes from becoming too many.
    pub processes: ProcessLimit,
}

/// Who stops processes from becoming too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessLimit {
    /// The kernel.
    Enforced,
    /// The runner, by looking from time to time.
    Watched,
}

/// What the same action does outside the fence, as the same user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// It works: a denial inside is the fence's doing.
    Allowed,
    /// It works for root only.
    AllowedForRoot,
    /// It may fail outside as well, and why, so a denial inside proves less.
    NotHere(&'static str),
}

impl Control {
    /// Whether an observation outside the fence is the expected one for this user.
    pub fn is_met_by(self, observed: &Observed, uid: u32) -> bool {
        match self {
            Self::Allowed => *observed == Observed::Allowed,
            Self::AllowedForRoot => uid != 0 || *observed == Observed::Allowed,
            Self::NotHere(_) => true,
        }
    }
}

/// One escape attempt.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The name in reports: a letter for the family and a number.
    pub id: &'static str,
    /// The guarantee that is broken if the action works.
    pub guarantee: Guarantee,
    /// The action, in one line.
    pub action: &'static str,
    /// What must be observed inside in read-only mode.
    pub read_only: Expected,
    /// What must be observed inside in isolated-write mode.
    pub isolated_write: Expected,
    /// What the same action does outside.
    pub control: Control,
    pub(super) run: fn(&FixtureFacts) -> Outcome,
}

impl Probe {
    /// A probe that is denied inside in both modes and works outside.
    pub(super) const fn new(
        id: &'static str,
        guarantee: Guarantee,
        action: &'static str,
        run: fn(&FixtureFacts) -> Outcome,
    ) -> Self {
        let denied = Expected::Denied;
        Self {
            id,
            guarantee,
            action,
            read_only: denied,
            isolated_write: denied,
            control: Control::Allowed,
            run,
        }
    }

    /// The same expectation in both modes.
    pub(super) const fn expecting(self, expected: Expected) -> Self {
        Self { read_only: expected, isolated_write: expected, ..self }
    }

    pub(super) const fn outside(self, control: Control) -> Self {
        Self { control, ..self }
    }

    /// What must be observed inside in this setting.
    pub const fn expected_in(&self, setting: &Setting) -> Expected {
        match setting.mode {
            AccessMode::ReadOnly => self.read_only,
            AccessMode::IsolatedWrite => self.isolated_write,
        }
    }

    /// Whether an observation inside is the expected one.
    pub fn is_met_in(&self, setting: &Setting, observed: &Observed) -> bool {
        self.expected_in(setting).is_met_by(observed, setting.processes)
    }
}

const FAMILIES: [&[Probe]; 9] = [
    files::PROBES,
    secrets::PROBES,
    signals::PROBES,
    network::PROBES,
    sockets::PROBES,
    privilege::PROBES,
    place::PROBES,
    sanity::PROBES,
    limits::PROBES,
];

const COUNT: usize = {
    let mut count = 0;
    let mut family = 0;
    while family < FAMILIES.len() {
        count += FAMILIES[family].len();
        family += 1;
    }
    count
};

/// Every probe.
pub const PROBES: &[Probe] = &{
    let mut all = [FAMILIES[0][0]; COUNT];
    let (mut family, mut at) = (0, 0);
    while family < FAMILIES.len() {
        let mut row = 0;
        while row < FAMILIES[family].len() {
            all[at] = FAMILIES[family][row];
            at += 1;
            row += 1;
        }
        family += 1;
    }
    all
};

/// Finds a probe by its id.
pub fn probe(id: &str) -> Option<&'static Probe> {
    PROBES.iter().find(|probe| probe.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Expected, PROBES};

    #[test]
    fn every_id_is_there_once() {
        let ids: BTreeSet<_> = PROBES.iter().map(|probe| probe.id).collect();
        assert_eq!(ids.len(), PROBES.len());
        // The numbers of a family have no hole: a probe that is lost would make one.
        for (family, last) in
            [("W", 34), ("R", 35), ("S", 18), ("N", 21), ("U", 8), ("P", 25), ("H", 12), ("X", 4), ("D", 4)]
        {
            for number in 1..=last {
                assert!(ids.contains(format!("{family}{number:02}").as_str()), "{family}{number:02}");
            }
            assert_eq!(ids.iter().filter(|id| id.starts_with(family)).count(), last, "{family}");
        }
    }

    #[test]
    fn only_these_actions_may_work_inside() {
        let works = |expected: fn(&super::Probe) -> Expected, copy: fn(Expected) -> bool| {
            PROBES.iter().filter(move |p| copy(expected(p))).map(|p| p.id).collect::<Vec<_>>()
        };
        let copies = |e: Expected| matches!(e, Expected::PrivateCopy(_));
        let needed = |e: Expected| matches!(e, Expected::Needed(_));
        assert_eq!(works(|p| p.read_only, copies), ["W13", "N13"]);
        assert_eq!(works(|p| p.isolated_write, copies), ["W03", "W09", "W13", "N13"]);
        assert_eq!(works(|p| p.read_only, needed), ["P20", "X02", "X03", "X04", "D04"]);
        assert_eq!(works(|p| p.isolated_write, needed), ["P20", "X01", "X02", "X03", "X04", "D04"]);
    }
}
