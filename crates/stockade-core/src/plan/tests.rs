//! Snapshots of plans.
