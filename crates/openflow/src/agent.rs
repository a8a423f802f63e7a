//! The switch.
