//! An application on os-ken.
