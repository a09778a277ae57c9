//! Whole runs: data sets, weights, reports, files.

mod common;

use common::language::{BATCH, SEQUENCE, VOCABULARY, model};
use common::values;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use slapo_program::*;
use slapo_runtime::data::DataSet;
use slapo_runtime::executor::Executor;
use slapo_runtime::{Error, save, trainer, weights};
use std::fs;
use std::path::{Path, PathBuf};
use tch::{Device, Kind, Tensor};
use tempfile::TempDir;

struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Files {
        Files { folder: TempDir::new().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.path(name), bytes).expect("writes");
        self.path(name)
    }

    fn text(&self, bytes: i64) -> PathBuf {
        let text: Vec<u8> = (0..bytes).map(|i| b'a' + (i * i % 26) as u8).collect();
        self.write("corpus.txt", &text)
    }

    /// A data set of integer tensors with the given shapes; values count up from 0 and wrap at 100.
    fn tensors(&self, tensors: &[(&str, Dtype, &[usize])]) -> PathBuf {
        let data: Vec<Vec<u8>> = tensors
            .iter()
            .map(|(_, dtype, shape)| {
                let numbers = (0..shape.iter().product::<usize>() as i64).map(|i| i % 100);
                match dtype {
                    Dtype::I64 => numbers.flat_map(i64::to_le_bytes).collect(),
                    Dtype::I32 => numbers.flat_map(|i| (i as i32).to_le_bytes()).collect(),
                    _ => numbers.flat_map(|i| (i as f32).to_le_bytes()).collect(),
                }
            })
            .collect();
        let views = tensors
            .iter()
            .zip(&data)
            .map(|((name, dtype, shape), data)| (*name, TensorView::new(*dtype, shape.to_vec(), data).expect("fits")));
        self.write("data.safetensors", &safetensors::serialize(views, None).expect("serialises"))
    }
}

fn job(program: Program, data: PathBuf, steps: u64) -> Job {
    Job {
        program,
        simulated: Vec::new(),
        peers: None,
        archive: None,
        data,
        steps,
        init: false,
        threads: Some(1),
        deterministic: true,
        dump_gradients: None,
        save: None,
        trace: None,
    }
}

fn run(job: Job) -> Result<Vec<Event>, Error> {
    let mut events = Vec::new();
    trainer::run(job, &mut |event| {
        events.push(event.clone());
        Ok(())
    })?;
    Ok(events)
}

fn losses(events: &[Event]) -> Vec<f64> {
    let loss = |event: &Event| match event {
        Event::Step { loss, .. } => Some(*loss),
        _ => None,
    };
    events.iter().filter_map(loss).collect()
}

fn load(path: &Path) -> Vec<(String, Vec<usize>, Vec<f64>)> {
    let bytes = fs::read(path).expect("exists");
    let file = SafeTensors::deserialize(&bytes).expect("parses");
    let mut tensors: Vec<_> = file
        .iter()
        .map(|(name, t)| {
            assert_eq!(t.dtype(), Dtype::F64);
            let numbers = t.data().chunks_exact(8).map(|c| f64::from_le_bytes(c.try_into().expect("eight")));
            (name.to_owned(), t.shape().to_vec(), numbers.collect())
        })
        .collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    tensors
}

#[test]
fn a_run_reports_trains_and_saves() {
    let files = Files::new();
    let job = Job {
        dump_gradients: Some(files.path("gradients.safetensors")),
        save: Some(files.path("model.safetensors")),
        trace: None,
        ..job(model(true), files.text(300), 20)
    };
    let events = run(job.clone()).expect("runs");
    let Event::Ready { libtorch, threads, rows, .. } = &events[0] else { panic!("{:?}", events[0]) };
    assert_eq!((libtorch.as_str(), *threads, *rows), ("2.11.0", 1, 37));
    let Event::Wrote { path, bytes } = &events[1] else { panic!("{:?}", events[1]) };
    assert_eq!((path, *bytes), (&files.path("gradients.safetensors"), fs::metadata(path).expect("exists").len()));
    let Event::Step { step, grad_norm, memory, .. } = &events[2] else { panic!("{:?}", events[2]) };
    let size = 2 * 6 * VOCABULARY as u64 * 8;
    assert_eq!(*step, 1);
    assert_eq!((memory.parameters, memory.gradients, memory.optimizer), (size, size, 0));
    let losses = losses(&events);
    assert!((losses[0] - (VOCABULARY as f64).ln()).abs() < 0.7, "{losses:?}");
    assert!(losses[19] < losses[0] - 0.5, "{losses:?}");
    assert!(matches!(events.last(), Some(Event::Done { steps: 20, .. })));

    let gradients = load(&files.path("gradients.safetensors"));
    let names: Vec<&str> = gradients.iter().map(|g| g.0.as_str()).collect();
    assert_eq!(names, ["head.weight", "wte.weight"]);
    let norm = gradients[0].2.iter().map(|g| g * g).sum::<f64>().sqrt();
    assert!((norm - grad_norm.expect("computed")).abs() < 1e-12 * norm);
    let saved = load(&files.path("model.safetensors"));
    assert_eq!(saved[1].0, "wte.weight");
    assert_eq!(saved[1].1, [VOCABULARY as usize, 6]);

    // The same job again gives the same bytes.
    let before = fs::read(files.path("model.safetensors")).expect("exists");
    run(job).expect("runs");
    assert_eq!(fs::read(files.path("model.safetensors")).expect("exists"), before);
    let left: Vec<_> = fs::read_dir(files.folder.path()).expect("lists").collect();
    assert_eq!(left.len(), 3, "no temporary files");
}

#[test]
fn text_becomes_windows_of_tokens() {
    let files = Files::new();
    let (batch, sequence) = (BATCH as u64, SEQUENCE as usize);
    let data = DataSet::open(&files.text(5 * SEQUENCE + 7), &model(true)).expect("opens");
    assert_eq!(data.rows(), 5);
    let text = fs::read(files.path("corpus.txt")).expect("exists");
    for step in [0, 1, 7] {
        let inputs = data.batch(step).expect("fits");
        let expected: Vec<f64> = (0..batch)
            .map(|row| ((step * batch + row) % 5) as usize * sequence)
            .flat_map(|at| text[at..at + sequence].iter().map(|b| f64::from(*b)))
            .collect();
        for (_, tensor) in &inputs[..2] {
            assert_eq!(tensor.kind(), Kind::Int64);
            assert_eq!(values(tensor), expected);
        }
        assert!(inputs[2].1.eq(1).all().int64_value(&[]) == 1, "the mask is ones");
    }
}

fn opening(path: &Path, program: &Program) -> String {
    let error = DataSet::open(path, program).err().expect("refused");
    assert_eq!(error.kind(), FailureKind::Input);
    error.to_string()
}

#[test]
fn text_that_does_not_fit_is_refused_with_numbers() {
    let files = Files::new();
    let path = files.text(BATCH * SEQUENCE - 1);
    assert_eq!(
        opening(&path, &model(false)),
        format!("`{}` is too short: one batch of 4 rows of 8 bytes needs 32 bytes, the file has 31", path.display())
    );
    assert!(DataSet::open(&files.text(BATCH * SEQUENCE), &model(false)).is_ok());
    assert!(opening(&files.write("empty.txt", b""), &model(false)).ends_with("is empty"));
    assert!(opening(&files.path("absent.txt"), &model(false)).contains("No such file"));
    let mut odd = model(false);
    odd.inputs[1].name = "pixel_values".to_owned();
    let message = opening(&files.text(100), &odd);
    assert!(message.starts_with("input `pixel_values` (i64[4, 8]) cannot be filled from text; give a"), "{message}");
}

#[test]
fn values_beyond_the_embedding_are_refused_with_row_and_limit() {
    let files = Files::new();
    let mut bytes = vec![b'a'; 64];
    bytes[43] = 200;
    let data = DataSet::open(&files.write("corpus.txt", &bytes), &model(false)).expect("opens");
    assert!(data.batch(0).is_ok());
    let error = data.batch(1).expect_err("refused");
    assert_eq!(error.kind(), FailureKind::Input);
    assert_eq!(error.to_string(), "input `input_ids` is 200 in row 5 of the data: legal values are 0 to 127");
}

#[test]
fn tensors_give_rows_and_convert_narrow_integers() {
    let files = Files::new();
    let path = files.tensors(&[("input_ids", Dtype::I32, &[6, 8]), ("labels", Dtype::I64, &[6, 8])]);
    let data = DataSet::open(&path, &model(false)).expect("opens");
    assert_eq!(data.rows(), 6);
    let inputs = data.batch(1).expect("fits");
    // Rows 4, 5, 0, 1.
    let expected: Vec<f64> = (32..48).chain(0..16).map(f64::from).collect();
    for (_, tensor) in &inputs {
        assert_eq!((tensor.kind(), tensor.size()), (Kind::Int64, vec![4, 8]));
        assert_eq!(values(tensor), expected);
    }
}

#[test]
fn tensors_that_do_not_fit_are_refused_with_both_types() {
    let files = Files::new();
    let labels: (&str, Dtype, &[usize]) = ("labels", Dtype::I64, &[6, 8]);
    for (tensors, message) in [
        (vec![labels], "has no tensor `input_ids`; it has `labels` I64[6, 8]"),
        (
            vec![labels, ("input_ids", Dtype::F32, &[6, 8])],
            "tensor `input_ids` is F32[6, 8], the model takes i64[4, 8]",
        ),
        (
            vec![labels, ("input_ids", Dtype::I64, &[6, 9])],
            "rows of tensor `input_ids` are i64[9], the model takes i64[8]",
        ),
        (vec![labels, ("input_ids", Dtype::I64, &[5, 8])], "tensor `labels` has 6 rows, `input_ids` has 5"),
        (vec![("labels", Dtype::I64, &[0, 8]), ("input_ids", Dtype::I64, &[0, 8])], "have no rows"),
    ] {
        let found = opening(&files.tensors(&tensors), &model(false));
        assert!(found.ends_with(message), "{found}");
    }
    let broken = opening(&files.write("data.safetensors", b"not at all"), &model(false));
    assert!(broken.contains("is not a safetensors file"), "{broken}");
}

#[test]
fn ignored_labels_are_legal_where_nothing_is_indexed() {
    let files = Files::new();
    let rows: Vec<u8> = [1i64, -100].iter().cycle().take(32).flat_map(|i| i.to_le_bytes()).collect();
    let write = |ids: &[u8]| {
        let view = |data| TensorView::new(Dtype::I64, vec![4, 8], data).expect("fits");
        let bytes = safetensors::serialize([("input_ids", view(ids)), ("labels", view(&rows))], None);
        files.write("data.safetensors", &bytes.expect("serialises"))
    };
    let data = DataSet::open(&write(&[0; 256]), &model(false)).expect("opens");
    assert!(data.batch(0).is_ok());
    let data = DataSet::open(&write(&rows), &model(false)).expect("opens");
    let error = data.batch(0).expect_err("refused").to_string();
    assert_eq!(error, "input `input_ids` is -100 in row 0 of the data: legal values are 0 to 127");
}

/// A program with one parameter `w` of the given type, read from `source`.
fn reading(ty: TensorType, source: Option<Source>, placement: Placement, init: Init) -> Program {
    let mut program = model(false);
    let parameter = &mut program.parameters[0];
    (parameter.source, parameter.placement, parameter.init) = (source, placement, init);
    program.globals[parameter.global as usize].ty = ty;
    program.parameters.truncate(1);
    program.functions.iter_mut().for_each(|f| f.body.clear());
    program
}

fn filled(program: Program, archive: Option<&Path>, init: bool) -> Result<Tensor, Error> {
    let global = program.parameters[0].global;
    let mut executor = Executor::new(program)?;
    weights::load(&mut executor, archive, init)?;
    Ok(executor.global(global).expect("filled").shallow_clone())
}

#[test]
fn weights_are_read_with_strides_boxes_and_conversion() {
    let files = Files::new();
    let numbers: Vec<u8> = (0..24).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let path = files.write("archive", &[vec![0xFF; 10], numbers].concat());
    // A [6, 4] tensor stored transposed.
    let source = Source { offset: 10, dtype: DType::F32, shape: vec![6, 4], strides: vec![1, 6] };
    let stored = Tensor::arange(24, (Kind::Double, Device::Cpu)).view([4, 6]).tr();
    let whole = TensorType::new(DType::F64, [6, 4]);
    let got =
        filled(reading(whole.clone(), Some(source.clone()), Placement::default(), Init::Stored), Some(&path), true);
    assert!(got.expect("reads").equal(&stored));
    // Dimension 0 in 3 groups of 2 parts, the second of each; then the first half of dimension 1.
    let splits = vec![Split::even(0, 3, 2, Part::Rank(1)), Split::even(1, 1, 2, Part::Rank(0))];
    let placement = Placement { global_shape: vec![6, 4], splits };
    let part = TensorType::new(DType::F64, [3, 2]);
    let init = Init::Normal { std: 2.0, site: 3 };
    let program = reading(part, Some(source.clone()), placement, init);
    let expected = stored.view([3, 2, 4]).select(1, 1).narrow(1, 0, 2);
    assert!(filled(program.clone(), Some(&path), false).expect("reads").equal(&expected));
    // Initialised, the part is the same part of the initialised whole.
    let all = filled(reading(whole.clone(), None, Placement::default(), init), None, false).expect("initialises");
    let expected = all.view([3, 2, 4]).select(1, 1).narrow(1, 0, 2);
    assert!(filled(program, Some(&path), true).expect("initialises").equal(&expected));
    let constant = reading(whole, Some(source), Placement::default(), Init::Constant(1.5));
    assert!(filled(constant, None, true).expect("initialises").eq(1.5).all().int64_value(&[]) == 1);
}

#[test]
fn missing_and_short_archives_are_refused() {
    let files = Files::new();
    let path = files.write("archive", &[0; 100]);
    let source = Source { offset: 64, dtype: DType::F32, shape: vec![5, 2], strides: vec![2, 1] };
    let ty = TensorType::new(DType::F32, [5, 2]);
    let program = reading(ty.clone(), Some(source), Placement::default(), Init::Constant(0.0));
    let refused = |program: &Program, archive: Option<&Path>| {
        let error = filled(program.clone(), archive, false).expect_err("refused");
        assert_eq!(error.kind(), FailureKind::Input);
        error.to_string()
    };
    assert_eq!(
        refused(&program, Some(&path)),
        format!(
            "`wte.weight` should lie at bytes 64 to 104 of `{}`, which has 100: was the archive changed after \
             compiling?",
            path.display()
        )
    );
    assert!(refused(&program, Some(&files.path("absent"))).contains("No such file"));
    assert_eq!(refused(&program, None), "`wte.weight` is stored in the archive, and the job names none");
    let buffer = reading(ty, None, Placement::default(), Init::Stored);
    assert_eq!(refused(&buffer, None), "`wte.weight` can only come from the archive, which does not hold it");
}

#[test]
fn saving_keeps_what_was_there_until_the_new_file_is_whole() {
    let files = Files::new();
    let tensor = Tensor::arange(6, (Kind::BFloat16, Device::Cpu)).view([2, 3]);
    let path = files.write("model.safetensors", b"old");
    let bytes = save::write(&path, &[("a.weight", &tensor.tr()), ("b", &Tensor::from(1i64))]).expect("writes");
    let written = fs::read(&path).expect("exists");
    assert_eq!(written.len() as u64, bytes);
    let file = SafeTensors::deserialize(&written).expect("parses");
    let a = file.tensor("a.weight").expect("exists");
    assert_eq!((a.dtype(), a.shape()), (Dtype::BF16, &[3, 2][..]));
    let (_, header) = SafeTensors::read_metadata(&written).expect("parses");
    assert_eq!(header.metadata().as_ref().and_then(|m| m.get("format")).map(String::as_str), Some("pt"));
    for (path, message) in [
        (PathBuf::from("/dev/full"), "it is not a regular file"),
        (files.folder.path().to_owned(), "it is not a regular file"),
        (files.path("absent/model.safetensors"), "No such file or directory"),
    ] {
        let error = save::write(&path, &[("a", &tensor)]).expect_err("refused").to_string();
        assert!(error.starts_with(&format!("cannot write `{}`: {message}", path.display())), "{error}");
    }
}
