//! What the host sees of a machine that says nothing.

use std::fs;

use super::{Machine, MachineState};

impl Machine {
    /// Its first process is stopped by a signal, so nothing in it goes on.
    pub fn is_frozen(&self) -> bool {
        self.of_process("stat").is_some_and(|stat| is_stopped(&stat))
    }

    /// It has no way out: its hub is gone, or it has a network of its own without a default route.
    pub fn is_cut_off(&self) -> bool {
        let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let own = self.pid.and_then(|pid| network(&pid.to_string()));
        let apart = own.is_some() && own != network("self");
        let routes = self.of_process("net/route").filter(|_| apart);
        self.state == MachineState::Disconnected || routes.is_some_and(|routes| !leads_out(&routes))
    }

    fn of_process(&self, file: &str) -> Option<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid?)).ok()
    }
}

/// The name of a process may hold anything, and ends with the last parenthesis.
fn is_stopped(stat: &str) -> bool {
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, Some("T" | "t"))
}

/// Whether there is a default route: its destination is zero.
fn leads_out(routes: &str) -> bool {
    routes.lines().skip(1).any(|line| line.split_whitespace().nth(1) == Some("00000000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_is_told_from_one_that_is_named_so() {
        assert!(is_stopped("7 (init) T 1 7 7 0"));
        assert!(is_stopped("7 (a) b) t 1 7"));
        assert!(!is_stopped("7 () T (x) S 1 7"));
        assert!(!is_stopped("7 (init) S 1 7") && !is_stopped("7 (init) Z 1 7") && !is_stopped(""));
    }

    #[test]
    fn a_way_out_is_a_default_route() {
        let head = "Iface\tDestination\tGateway \tFlags\n";
        let near = "eth0\t0000D50A\t00000000\t0001\n";
        assert!(!leads_out(head) && !leads_out(&format!("{head}{near}")) && !leads_out(""));
        assert!(leads_out(&format!("{head}eth0\t00000000\t0100D50A\t0003\n{near}")));
    }
}
