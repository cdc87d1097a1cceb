//! gRPC Server Reflection (v1 and v1alpha), by which clients can list the services Arrow Flight and health checks.
//!
//! The descriptors of Arrow Flight are the compiled `proto/Flight.proto`, because the code that arrow-flight generated
//! contains none. A test of the program calls a server with a client that knows only these descriptors.

use tonic::service::Routes;
use tonic_reflection::server::Builder;

/// The encoded descriptors of `proto/Flight.proto` and of the file that it imports.
const FLIGHT_DESCRIPTORS: &[u8] = include_bytes!("../proto/Flight.descriptors");

/// Adds the gRPC reflection services to the routes of a server.
pub(crate) fn with_reflection(routes: Routes) -> Routes {
    let described = || {
        let builder = Builder::configure().register_encoded_file_descriptor_set(FLIGHT_DESCRIPTORS);
        builder.register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let why = "the descriptors are those of compiled files, as a test checks";
    routes.add_service(described().build_v1().expect(why)).add_service(described().build_v1alpha().expect(why))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_descriptors_are_those_of_the_proto_file() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
        let mut compiler = protox::Compiler::new([&directory]).unwrap();
        compiler.include_imports(true).open_file("Flight.proto").unwrap();
        let compiled = compiler.encode_file_descriptor_set();
        if compiled != FLIGHT_DESCRIPTORS {
            let found = tempfile::NamedTempFile::new().unwrap().into_temp_path().keep().unwrap();
            std::fs::write(&found, compiled).unwrap();
            panic!("Flight.proto has changed; copy {} to {directory:?}/Flight.descriptors", found.display());
        }
    }
}
