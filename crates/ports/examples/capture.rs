//! Writes a capture of generated traffic: `capture OUT.pcap [PACKETS [SEED [FLOWS]]]`.

use flowyard_ports::pcap::{Format, Writer};
use flowyard_testkit::{Profile, Traffic};
use flowyard_wire::LinkType;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: capture OUT.pcap [PACKETS [SEED [FLOWS]]]")?;
    let packets = args.next().map_or(Ok(100_000), |n| n.parse::<u64>())?;
    let seed = args.next().map_or(Ok(1), |n| n.parse())?;
    let flows = args.next().map_or(Ok(1000), |n| n.parse())?;
    let mut traffic = Traffic::new(Profile { flows, ..Profile::default() }, seed);
    let mut writer = Writer::create(path, Format::PcapNanos, LinkType::Ethernet)?;
    let mut frame = Vec::new();
    for _ in 0..packets {
        let packet = traffic.next_into(&mut frame);
        writer.write(packet.time, frame.len() as u32, &frame)?;
    }
    Ok(writer.finish()?)
}
