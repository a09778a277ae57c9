use slapo_syntax::*;
fn check(t:&str)->usize{ let p=parse(FileId(0),t); let mut at=0; for l in p.root().leaves(){assert_eq!(l.start(),at); at=l.end();} assert_eq!(at as usize,t.len()); for d in &p.diagnostics { assert!(!d.message.contains("could not be parsed")); for l in d.primary.iter().chain(&d.secondary){ assert!(t.get(l.span.range()).is_some()); } for f in &d.fixes { f.apply(FileId(0),t);} } for n in p.root().descendants() { if n.kind()==SyntaxKind::Block { let _ = n.text(); } } p.diagnostics.len()}
fn main(){ let mut worst=(0,String::new()); let mut slow=(std::time::Duration::ZERO,String::new()); let mut n=0u64; let mut hist=[0u64;12];
 for a in std::env::args().skip(1){ let t=std::fs::read_to_string(&a).unwrap(); let base=check(&t);
  let ins=["(",")","[","]","{","}","\"","'",".",",",";","\n","#","=","a ","ü"," in ","else {",":","?","*","-","!","&","schedule x","let ","where "];
  for (i,c) in t.char_indices(){ let mut cands=vec![t[..i].to_string(), format!("{}{}",&t[..i],&t[i+c.len_utf8()..])]; for s in ins {cands.push(format!("{}{s}{}",&t[..i],&t[i..]));}
   for (k,x) in cands.into_iter().enumerate(){ let s=std::time::Instant::now(); let e=check(&x).saturating_sub(base); let d=s.elapsed(); n+=1; hist[e.min(11)]+=1; if d>slow.0 {slow=(d,format!("{a} {i} {k}"));} if e>worst.0 {worst=(e,format!("{a} at {i} op {k}: {:?}",&t[i..].chars().take(20).collect::<String>()));} } } }
 println!("{n} inputs, worst {} {}, slowest {:?} {}, hist {hist:?}",worst.0,worst.1,slow.0,slow.1);
 let all:String=std::env::args().skip(1).map(|a|std::fs::read_to_string(a).unwrap()).collect::<String>().repeat(27); let s=std::time::Instant::now(); let p=parse(FileId(0),&all); println!("{} lines {} bytes {:?} diags {}",all.lines().count(),all.len(),s.elapsed(),p.diagnostics.len());
 for _ in 0..4 {let s=std::time::Instant::now(); parse(FileId(0),&all); println!("{:?}",s.elapsed());}
}
