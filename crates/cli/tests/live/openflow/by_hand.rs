//! `flowyard switch`, at a switch that moves frames.
