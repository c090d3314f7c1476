//! The planner for clouds whose servers are deleted to sleep and made again to wake: it pauses servers, images them,
//! records them, deletes them, and makes them again.
//!
//! A cloud implements [`Cloud`]: lists and single requests. The planner decides. Everything it knows is in the cloud
//! and in the [`Ledger`](shared::cloud::Ledger), so that a process may die at any request.
//!
//! | rule | why |
//! |---|---|
//! | A server is deleted only after a stored, sealed [`Record`] gives it up, while its image is active | no server is lost |
//! | A server that was given up never runs again | its image is what it was |
//! | Each create has a number and a time in the record before it is sent. It is repeated once no server of its cycle is listed and [`REQUEST_LIFETIME`] has passed | OpenStack has no idempotency key: of two creates at once the loser unbinds the winner's ports |
//! | Each request that makes a server run is in the record before it is sent. The server is given up once [`REQUEST_LIFETIME`] has passed | the request of a former leader may still arrive |
//! | An image that failed is left behind with its cycle | the delete of a former leader may still arrive |

mod cloud;
mod give_up;
mod ledger;
mod listing;
mod planner;
mod record;
mod steps;
mod survey;

pub use self::cloud::{
    Attributes, Cloud, ClusterLists, Difference, Failure, Image, ImageStatus, Machines, Obstacle, Request, Server,
    Status, check_size, keep,
};
pub use self::planner::{MAX_IN_FLIGHT, MAX_REQUESTS, Planner, SEND_WINDOW};
pub use self::record::{
    Attempt, MAX_BACKOFF_FACTOR, Machine, REQUEST_LIFETIME, Record, STALL_TIMEOUT, sleep_retry_delay,
};
