//! How runs end: a table of every fact that can end one, and of facts that must not.

mod any_order;
mod demands;
mod endings;
mod facts;
mod first_fact;
mod identity;
mod script;
mod wire;
