//! The captures of a configuration, as they are in the file system.

use std::path::{Path, PathBuf};

use toml::Spanned;

use super::{Config, ConfigError, PortConfig, file};

const RELATIVE: &str = "a relative path begins at the working directory";

impl Config {
    /// Refuses a capture to write that replaces a file that is read, or another one that is written. The paths may be
    /// different: links and other spellings are followed.
    ///
    /// # Errors
    /// The first such port.
    pub fn refuse_replaced_captures(&self) -> Result<(), ConfigError> {
        let written = |port: &Spanned<PortConfig>| port.get_ref().output.clone();
        let outputs: Vec<_> = self.port.iter().filter_map(written).collect();
        for (at, output) in outputs.iter().enumerate() {
            let path = output.get_ref().as_path();
            let refused = |what, fix| Err(self.error(output.span(), what, fix));
            if outputs[..at].iter().any(|other| file::is_same(other.get_ref(), path)) {
                return Err(self.shared_output(output));
            }
            let reads = |port: &&PortConfig| {
                port.input.as_ref().is_some_and(|input| file::is_same(input.get_ref(), path))
            };
            if let Some(port) = self.ports().find(reads) {
                let what = format!(
                    "port '{}' receives from this file, and the capture that is written would replace it",
                    port.name.get_ref()
                );
                return refused(what, "name another file to write");
            }
            if file::is_same(Path::new(self.source.name()), path) {
                let what = "this is the configuration, and the capture would replace it";
                return refused(what.to_owned(), "name another file to write");
            }
        }
        Ok(())
    }

    /// The error of two ports that write one file.
    pub(crate) fn shared_output(&self, output: &Spanned<PathBuf>) -> ConfigError {
        let what = "another port transmits to this file, and one capture would replace the other";
        self.error(output.span(), what, "give each port its own")
    }

    /// The error of a capture that cannot be opened, with the place of its path in the text.
    pub(crate) fn capture_error(
        &self,
        port: u16,
        is_output: bool,
        error: &flowyard_ports::Error,
    ) -> ConfigError {
        let text = error.to_string();
        let (what, fix) = text.split_once("; ").unwrap_or((&text, "name another file"));
        let port = self.ports().nth(usize::from(port));
        let path = port
            .and_then(|port| if is_output { port.output.as_ref() } else { port.input.as_ref() });
        let is_relative = path.is_some_and(|path| path.get_ref().is_relative());
        let fix = if is_relative { format!("{fix} ({RELATIVE})") } else { fix.to_owned() };
        let name = port.map(|port| port.name.get_ref().as_str()).unwrap_or_default();
        self.error(path.map_or(0..0, Spanned::span), format!("port '{name}': {what}"), fix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration of two ports with these lines.
    fn config(name: &str, west: &str, east: &str) -> Config {
        let text = format!(
            "[[port]]\nname = \"west\"\nkind = \"pcap\"\n{west}\n[[port]]\nname = \"east\"\nkind = \"pcap\"\n{east}\n\
             [[queue]]\nname = \"q\"\norder = \"direct\"\nconsumers = [0]\n[work]\nkind = \"forward\"\n"
        );
        Config::parse(name, &text).unwrap()
    }

    #[test]
    fn a_capture_that_would_be_replaced_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (here, yard) = (path("here.pcap"), path("yard.toml"));
        std::fs::write(&here, "frames").unwrap();
        std::fs::write(&yard, "").unwrap();
        std::os::unix::fs::symlink(&here, path("symbolic.pcap")).unwrap();
        std::os::unix::fs::symlink(path("new.pcap"), path("dangling.pcap")).unwrap();
        std::fs::hard_link(&here, path("hard.pcap")).unwrap();
        std::fs::create_dir(path("folder")).unwrap();
        let said = |west: &str, east: &str| {
            let refused = config(&yard, west, east).refuse_replaced_captures();
            refused.err().map(|error| error.to_string())
        };
        let reads = format!("in = {here:?}");
        for other in ["here.pcap", "folder/../here.pcap", "symbolic.pcap", "hard.pcap"] {
            let writes = format!("out = {:?}", path(other));
            for (west, east, line) in
                [(&*reads, &*writes, 8), (&*format!("{reads}\n{writes}"), "", 5)]
            {
                let said = said(west, east).unwrap();
                assert!(said.starts_with(&format!("{yard}:{line}:7: port 'west' rec")), "{said}");
                assert!(said.ends_with("would replace it; name another file to write"), "{said}");
            }
        }
        for other in ["new.pcap", "folder/../new.pcap", "dangling.pcap"] {
            if other != "new.pcap" {
                let first = format!("{reads}\nout = {:?}", path("new.pcap"));
                let said = said(&first, &format!("out = {:?}", path(other))).unwrap();
                assert!(said.contains(":9:7: another port transmits to this file"), "{said}");
            }
            assert_eq!(said(&reads, &format!("out = {:?}", path(other))), None);
        }
        let itself = said(&reads, &format!("out = {yard:?}")).unwrap();
        assert!(itself.contains("this is the configuration"), "{itself}");
        assert_eq!(said(&format!("{reads}\nout = {:?}", path("copy.pcap")), ""), None);
    }

    #[test]
    fn a_capture_that_is_not_opened_has_a_place() {
        let said = |west: &str, east: &str| {
            let config = config("yard.toml", west, east);
            let built = config.build(flowyard_yard::Parts::default());
            built.err().expect("a capture is missing").to_string()
        };
        assert_eq!(
            said("# in =\n  in  = \"no/such.pcap\"", ""),
            "yard.toml:5:9: port 'west': no/such.pcap: cannot open: No such file or directory (os error 2); \
             check the path (a relative path begins at the working directory)"
        );
        assert!(said("", "in = \"/no/such.pcap\"").ends_with("; check the path"));
        let real = format!("in = \"{}/../../captures/yard.pcap\"", env!("CARGO_MANIFEST_DIR"));
        let output = said(&real, "out = \"no/such.pcap\"");
        assert!(output.starts_with("yard.toml:8:7: port 'east': no/such.pcap: cannot create: "));
        assert!(output.contains("create the folder first, or write elsewhere (a relative"));
    }
}
