//! The machine that flowyard runs on: reads the settings of a network interface and of the kernel that
//! decide where frames go, plans changes of them, applies these and undoes them.
