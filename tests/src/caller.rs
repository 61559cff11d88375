//! As whom a test starts the binary.

/// The user id of the fresh unprivileged user: no account of the machine has it.
pub const FRESH_UID: u32 = 54_321;

/// As whom, and on which class of host.
#[derive(Clone, Debug)]
pub struct Caller {
    /// For test output.
    pub name: &'static str,
    /// The user.
    pub uid: u32,
    /// Classes of `host-class`.
    pub classes: Vec<&'static str>,
}

impl Caller {
    /// Root on this machine as it is.
    pub fn root() -> Self {
        Self { name: "root", uid: 0, classes: Vec::new() }
    }

    /// A fresh unprivileged user with a home of its own.
    pub fn fresh_user() -> Self {
        Self { name: "fresh-user", uid: FRESH_UID, classes: Vec::new() }
    }

    /// Both.
    pub fn both() -> [Self; 2] {
        [Self::root(), Self::fresh_user()]
    }

    /// The same user on another class of host.
    #[must_use]
    pub fn on(mut self, classes: &[&'static str]) -> Self {
        self.classes.extend_from_slice(classes);
        self
    }
}
