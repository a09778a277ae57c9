use slapo_syntax::*;
use std::collections::BTreeMap;
fn main(){ let mut tally:BTreeMap<String,(u64,String)>=BTreeMap::new();
 for a in std::env::args().skip(1){ let t=std::fs::read_to_string(&a).unwrap();
  let ins=["(",")","[","]","{","}","\"","'",".",",",";","\n","#","=","a ","ü"," in ","else {",":","?"];
  for (i,c) in t.char_indices(){ let mut cands=vec![("prefix".to_string(),t[..i].to_string()), ("del".into(),format!("{}{}",&t[..i],&t[i+c.len_utf8()..]))]; for s in ins {cands.push((s.into(),format!("{}{s}{}",&t[..i],&t[i..])));}
   for (k,x) in cands{ let p=parse(FileId(0),&x); if p.diagnostics.len()>=3 { let key=format!("{k:?} {}", p.diagnostics.iter().map(|d|d.code.id()).collect::<Vec<_>>().join(" ")); let line=x[..i].rfind('\n').map_or(0,|n|n+1); let e=tally.entry(key).or_insert((0,format!("{a} {i}: {:?}", x[line..].chars().take(70).collect::<String>()))); e.0+=1; } } } }
 let mut v:Vec<_>=tally.into_iter().collect(); v.sort_by_key(|(_,(n,_))|std::cmp::Reverse(*n)); for (k,(n,e)) in v.iter().take(45) {println!("{n} {k}  {e}");}
}
