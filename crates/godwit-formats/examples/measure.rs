#![allow(clippy::all, missing_docs)]
use std::path::PathBuf;
use std::time::Instant;
use std::io::Read;
fn cpu()->f64{ let s=std::fs::read_to_string("/proc/self/stat").unwrap(); let f:Vec<&str>=s.rsplit(')').next().unwrap().split_whitespace().collect(); (f[11].parse::<f64>().unwrap()+f[12].parse::<f64>().unwrap())/100.0 }
fn main(){
    let a:Vec<String>=std::env::args().collect();
    let threads:usize=a[3].parse().unwrap();
    let path=PathBuf::from(&a[2]);
    let t=Instant::now();
    let mut n=0u64;
    match a[1].as_str(){
        "fastq"=>{ use godwit_formats::fastq::*; let mut l=LaneReader::open(&[path.clone()],&LaneOptions{decompress_threads:threads,..Default::default()}).unwrap();
            while let Some(e)=l.next().unwrap(){ if let LaneEvent::Reads(b)=e{ n+=b.get_array_memory_size() as u64; } } }
        "bam"=>{ use godwit_formats::bam::*; let mut r=Reader::open(&path,threads).unwrap(); let mut c=RecordChunk::default();
            while r.read_chunk(&mut c,1<<20).unwrap(){ n+=c.data.len() as u64; } }
        "text"=>{ let mut r=godwit_formats::bgzf::open_text(&path,threads).unwrap(); let mut b=vec![0;1<<20]; loop{ let k=r.read(&mut b).unwrap(); if k==0{break} n+=k as u64; } }
        _=>{ let mut r=godwit_formats::fasta::Reader::open(&path,threads).unwrap(); while r.next_contig().unwrap().is_some(){ while let Some(b)=r.next_bases().unwrap(){ n+=b.len() as u64; } } }
    }
    let s=t.elapsed().as_secs_f64();
    println!("{} {} t{}: {:.0} MB in {:.2} s = {:.0} MB/s, cpu {:.2}", a[1], path.file_name().unwrap().display(), threads, n as f64/1e6, s, n as f64/1e6/s, cpu());
}
