//! osken-manager with an application of ours.
