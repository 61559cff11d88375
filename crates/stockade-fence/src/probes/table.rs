//! The table: what each probe does, which guarantee it tests, and what is expected inside and outside.

use stockade_core::{guarantee::Guarantee, mode::AccessMode, survey::Rung};

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
    /// The action works on this rung, which is its price: why nothing outside is reached by it.
    Price(&'static str),
    /// The action says nothing here and has to fail, because what it reaches for is not there: why not.
    NotThere(&'static str),
}

impl Expected {
    /// Whether an observation is the expected one. An action that hung or crashed shows nothing.
    pub fn is_met_by(self, observed: &Observed, processes: ProcessLimit) -> bool {
        let denied = matches!(observed, Observed::Denied(_) | Observed::KilledBySeccomp);
        match self {
            Self::Denied | Self::NotThere(_) => denied,
            Self::DeniedWith(errno) => *observed == Observed::Denied(errno),
            Self::DeniedWhereEnforced => match processes {
                ProcessLimit::Enforced => denied,
                ProcessLimit::Watched => denied || *observed == Observed::Allowed,
            },
            Self::PrivateCopy(_) | Self::Needed(_) | Self::Price(_) => *observed == Observed::Allowed,
        }
    }

    /// The word in reports: `denied`, the name of an error number, `allowed`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Denied | Self::NotThere(_) => "denied",
            Self::DeniedWith(errno) => errno_name(errno),
            Self::DeniedWhereEnforced => "denied where enforced",
            Self::PrivateCopy(_) | Self::Needed(_) | Self::Price(_) => "allowed",
        }
    }

    /// Why it may work.
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::PrivateCopy(reason)
            | Self::Needed(reason)
            | Self::Price(reason)
            | Self::NotThere(reason) => Some(reason),
            Self::Denied | Self::DeniedWith(_) | Self::DeniedWhereEnforced => None,
        }
    }
}

/// Where a probe is taken, as far as that decides what must be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What the fence lets happen to the workspace.
    pub mode: AccessMode,
    /// The rung it is built on. `ns-nest` keeps the provider's own sandbox; every other stands in its place.
    pub rung: Rung,
    /// As whom the payload runs, seen from the kernel.
    pub user: KernelUser,
    /// Who stops processes from becoming too many.
    pub processes: ProcessLimit,
}

/// As whom a payload runs, seen from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelUser {
    /// As whoever started the fence, with whom it shares what the kernel keeps per user.
    Callers,
    /// As somebody else.
    Another,
}

/// What is different on some rungs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exception {
    pub(super) rungs: &'static [Rung],
    /// Only for these.
    pub(super) users: &'static [KernelUser],
    /// Only in these.
    pub(super) modes: &'static [AccessMode],
    pub(super) expected: Expected,
}

impl Exception {
    pub(super) const fn on(rungs: &'static [Rung], expected: Expected) -> Self {
        Self { rungs, users: &[KernelUser::Callers, KernelUser::Another], modes: &AccessMode::ALL, expected }
    }

    /// Only where the payload is the caller's own user.
    pub(super) const fn as_the_caller(self) -> Self {
        Self { users: &[KernelUser::Callers], ..self }
    }

    /// Only where the workspace is writable.
    pub(super) const fn in_isolated_write(self) -> Self {
        Self { modes: &[AccessMode::IsolatedWrite], ..self }
    }

    fn holds_in(&self, setting: Setting) -> bool {
        self.rungs.contains(&setting.rung)
            && self.users.contains(&setting.user)
            && self.modes.contains(&setting.mode)
    }
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

/// Whether a probe says something where a tool of a real agent takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByTool {
    /// It does: the same as in a fence without an agent.
    Taken,
    /// It does not, and why.
    Left(&'static str),
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
    /// What is different on some rungs.
    pub(super) exceptions: &'static [Exception],
    /// What the same action does outside.
    pub control: Control,
    /// Whether a tool of a real agent takes it.
    pub by_tool: ByTool,
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
            exceptions: &[],
            control: Control::Allowed,
            by_tool: ByTool::Taken,
            run,
        }
    }

    /// The same expectation in both modes.
    pub(super) const fn expecting(self, expected: Expected) -> Self {
        Self { read_only: expected, isolated_write: expected, ..self }
    }

    /// Something else on some rungs.
    pub(super) const fn except(self, exceptions: &'static [Exception]) -> Self {
        Self { exceptions, ..self }
    }

    pub(super) const fn outside(self, control: Control) -> Self {
        Self { control, ..self }
    }

    /// It says nothing where a tool of a real agent takes it.
    pub(super) const fn not_by_tool(self, why: &'static str) -> Self {
        Self { by_tool: ByTool::Left(why), ..self }
    }

    /// What must be observed inside in this setting.
    pub fn expected_in(&self, setting: &Setting) -> Expected {
        if let Some(exception) = self.exceptions.iter().find(|e| e.holds_in(*setting)) {
            return exception.expected;
        }
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

/// The probes that a tool of a real agent takes.
pub fn taken_by_tool() -> impl Iterator<Item = &'static Probe> {
    PROBES.iter().filter(|probe| probe.by_tool == ByTool::Taken)
}

/// Finds a probe by its id.
pub fn probe(id: &str) -> Option<&'static Probe> {
    PROBES.iter().find(|probe| probe.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stockade_core::mode::AccessMode::{self, IsolatedWrite, ReadOnly};
    use stockade_core::survey::Rung;

    use super::KernelUser::{Another, Callers};
    use super::{ByTool, Expected, PROBES, ProcessLimit, Setting, taken_by_tool};

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
    fn only_these_are_left_out_where_a_tool_takes_them() {
        let left: Vec<_> = PROBES.iter().filter(|p| p.by_tool != ByTool::Taken).map(|p| p.id).collect();
        let expected = ["R14", "R15", "R16", "R17", "R22", "R26", "R27", "R32", "R33", "D01", "D02", "D03"];
        assert_eq!(left, expected);
        assert_eq!(taken_by_tool().count(), PROBES.len() - expected.len());
    }

    #[test]
    fn only_these_actions_may_work_inside() {
        let works = |rung, mode, user, copy: fn(Expected) -> bool| {
            let setting = Setting { mode, rung, user, processes: ProcessLimit::Enforced };
            PROBES.iter().filter(|p| copy(p.expected_in(&setting))).map(|p| p.id).collect::<Vec<_>>()
        };
        for (rung, user) in Rung::ALL.into_iter().zip([Callers, Another].into_iter().cycle()) {
            // Through bubblewrap only a plain folder is writable: there is no git folder, and no pointer to one.
            let is_plain = rung == Rung::Bs;
            let copies = |e: Expected| matches!(e, Expected::PrivateCopy(_));
            assert_eq!(works(rung, ReadOnly, user, copies), ["W13", "N13"]);
            let git: &[&str] = if is_plain { &[] } else { &["W03", "W09"] };
            assert_eq!(works(rung, IsolatedWrite, user, copies), [git, &["W13", "N13"]].concat());
            let needed = |e: Expected| matches!(e, Expected::Needed(_));
            let always = ["P20", "X02", "X03", "X04", "D04"];
            assert_eq!(works(rung, ReadOnly, user, needed), always);
            let written: &[&str] = if is_plain { &["W11", "P20", "X01"] } else { &["P20", "X01"] };
            assert_eq!(works(rung, IsolatedWrite, user, needed), [written, &always[1..]].concat());
            let absent = |e: Expected| matches!(e, Expected::NotThere(_));
            assert_eq!(works(rung, ReadOnly, user, absent), [""; 0]);
            let absences: &[&str] = if is_plain { &["W03", "W09", "W10"] } else { &[] };
            assert_eq!(works(rung, IsolatedWrite, user, absent), absences);
        }
        let price = |e: Expected| matches!(e, Expected::Price(_));
        for mode in AccessMode::ALL {
            for user in [Callers, Another] {
                for rung in [Rung::Nsl, Rung::Ns, Rung::Bs] {
                    assert_eq!(works(rung, mode, user, price), [""; 0]);
                }
                assert_eq!(works(Rung::NsHostproc, mode, user, price), ["R13"]);
            }
            assert_eq!(works(Rung::NsNest, mode, Another, price), ["R34", "P03", "P23"]);
            assert_eq!(works(Rung::NsNest, mode, Callers, price), ["R24", "R34", "P03", "P23"]);
        }
    }
}
