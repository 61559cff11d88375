//! What keeps git from working in a fence, by name.

/// For which runs something is an obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// For every run: somebody tampered with the repository, or nothing can be told about it.
    Every,
    /// Git cannot be served in the fence: work there is refused, a look is shown the repository as it is.
    Serving,
    /// Work would lose something: it is refused, a look is served.
    Working,
}

/// A reason why git does not work with this folder in a fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// A stable word.
    pub code: &'static str,
    /// For which runs.
    pub extent: Extent,
    /// What was found.
    pub message: String,
    /// Where.
    pub evidence: Vec<String>,
    /// What to do.
    pub remedy: &'static str,
}

impl Obstacle {
    pub(crate) fn new(
        code: &'static str,
        extent: Extent,
        message: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        Self { code, extent, message: message.into(), evidence: Vec::new(), remedy }
    }

    #[must_use]
    pub(crate) fn seen_in(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }
}
