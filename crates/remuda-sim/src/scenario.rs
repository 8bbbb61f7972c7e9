//! Scenarios: a script, and what it makes happen.
//!
//! A file is a list of commands, a line `----`, and the narrative the commands gave rise to; then, after an empty
//! line, more of the same. Time stands still but for commands that let it pass, so a file reads the same every time.
//! The narrative is sampled once a second: what came and went in between is not told.
//!
//! Names that controllers make up are told by what they are: MachineSets of a MachineDeployment `web` are `web#1`,
//! `web#2` in the order they came to be, and Machines are counted by their owner. Commands may use these too; the
//! Machines of `web` are `web/0`, `web/1` by age.
//!
//! | command | |
//! |---|---|
//! | `latency create=10s boot=20s …` | how long steps take; first thing in a file |
//! | `failures create=1 boot=0.5 ready=0` | how often steps fail, from the next start of the controllers on |
//! | `cluster NAME [cp=1] [workers=0] [version=V]` | a Cluster with control plane and a MachineDeployment `NAME-md` |
//! | `template NAME [size=S]` | a SimMachineTemplate |
//! | `apply`, then indented YAML | objects, as `kubectl apply` |
//! | `patch KIND NAME JSON`, `status KIND NAME JSON` | merge patch of an object, or of its status |
//! | `delete KIND NAME`, `scale KIND NAME N`, `annotate KIND NAME KEY[=VALUE]`, `annotate KIND NAME KEY-` | |
//! | `strip KIND NAME [owners]`, `strip KIND NAME finalizers` | takes away all owners and finalizers, or one of them |
//! | `wait DURATION` | lets time pass |
//! | `skip DURATION` | the same, and looks only when it is over: for what happens at moments nobody can tell |
//! | `settle` | lets time pass until nothing has changed for three quarters of a minute |
//! | `restart`, `stop`, `start` | of all controllers |
//! | `reach CLUSTER answers`, `refuses` or `hangs` | the workload cluster |
//! | `node CLUSTER NODE ready`, `notready`, `silent` or `gone` | a Node |
//! | `pod CLUSTER NS/NAME on NODE [label=value …] [ends=SECONDS]`, `nopod CLUSTER NS/NAME` | a Pod |
//! | `budget CLUSTER NS/NAME min=N label=value` | a PodDisruptionBudget |
//! | `look CLUSTER PLURAL [NS/]NAME` | tells whether a workload cluster has an object |
//! | `show KIND [NAME PATH]` | tells how many objects there are, or a field |
//! | `expect KIND NAME PATH VALUE`, `expect KIND COUNT` | fails unless it is so |

mod command;
mod kinds;
mod narrative;
mod script;
mod stage;

pub use self::{
    narrative::Narrative,
    script::{Block, Script, ScriptError},
    stage::{Controllers, RunError, Stage},
};
