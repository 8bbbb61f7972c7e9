//! CustomMachine, a server that was there before.

use remuda_names::rancher::group::RKE;

use super::{Condition, Provisioned};
use crate::{core::MachineAddress, lenient, object::object};

lenient! {
    pub struct CustomMachineSpec {
        /// What the cluster calls the server.
        #[serde(rename = "providerID")]
        pub provider_id: String,
    }

    pub struct CustomMachineStatus {
        /// Conditions of the machine.
        pub conditions: Vec<Condition>,
        /// What older controllers look at instead of initialization.
        pub ready: bool,
        /// Steps that are done once and stay done.
        pub initialization: Provisioned,
        /// Addresses of the server.
        pub addresses: Vec<MachineAddress>,
    }
}

object! {
    /// A server that was there before and registered itself.
    mod custom_machine; CustomMachine = "CustomMachine", RKE, "v1", "custommachines", NamespaceResourceScope;
    spec: CustomMachineSpec; status: CustomMachineStatus;
    {}
}
