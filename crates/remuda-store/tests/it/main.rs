//! Behaviour of the store through its public interface, engine by engine.

mod conformance;
