//! The table of endings.
