"""The part of a CPU program besides its kernels: a runner of launch lists, and probes that measure the machine.

The probes look like kernels and run like them. They are part of the program so that a model that is loaded without a
compiler can still report the machine's limits.
"""

from __future__ import annotations

from gpucomp.codegen.llvm.ir.builder import Code, Value
from gpucomp.codegen.llvm.ir.types import F32, I64, PTR, Type
from gpucomp.device.target import Target
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource

CHAINS = 12  # chains of dependent multiply-adds; more than latency times throughput of any CPU, and fit 16 registers
STEPS = 4096  # multiply-adds of each chain in a task
COPIED_AT_ONCE = 4  # vectors

# PAUSE and CYCLES are placeholders for text that depends on the instruction set (gpucomp.device.isa)
RUNNER = """
; Launch l of the table is { ptr entry, ptr arguments, i64 tasks, ptr state }. Thread t of n owns the tasks from tasks * t / n
; to tasks * (t + 1) / n. It has the same part of the result in every launch, so much of what it reads is in its own cache.
; A launch starts when the one before it is done.
; state: 128 bytes for each thread, with the next task of the thread's part that can be claimed, below the run's number
; (epoch << 32 | task). Byte 64 counts the tasks that are done.
; Threads claim tasks of their own part first, then of the others' parts. A thread that is suspended or late delays others
; only by the tasks that it has claimed. A single thread claims all of a launch at once; otherwise each claim is a quarter
; of a part. A thread that arrives after the run finds another epoch and leaves.
; notes: null, or where this thread records the cycle counter: for each launch of the table, when it started on it and when
; it found nothing more to do. It belongs to the run, as the table does, so that a late thread does not write into the next
; run's notes.
; context: 0 a function that yields to other threads after a long wait, 8 the number of spins before that,
; 16 a function that sleeps, 24 for how many microseconds, 32 after how many spins threads other than 0 sleep;
; 40 where thread 0 records the cycle counter after the last launch; 48 not 0 once the run is to stop: what is left is not run.
define void @gc_run(ptr %table, i64 %first, i64 %last, ptr %context, i64 %thread, i64 %threads, i64 %epoch, ptr %notes) #1 {
  call void @gc_run_loops(ptr %table, i64 %first, i64 %last, ptr %context, i64 %thread, i64 %threads, i64 %epoch, ptr %notes,
    ptr null)
  ret void
}

; as gc_run, with loops: launches first .. last - 1 of a loop run in this order, count times.
; loops: null, or for each launch of the table null or its loop
; { i64 first, i64 last, i64 count, i64 how, i64 arguments, [arguments x i64] bytes by which each advances with every step }
; how: 1 for a loop that one thread runs alone, plus 2 if that thread runs the tasks of odd steps from the last to the first
; A launch's claims and done tasks go on counting from step to step, so that nothing has to be reset. If it is to run alone,
; thread 0 runs it by gc_steps. The others wait for its end: one more than its tasks is done then, as it may have no steps.
; notes has a third number for each launch, if there are loops: the cycles from each start to each end, together.
define void @gc_run_loops(ptr %table, i64 %first, i64 %last, ptr %context, i64 %thread, i64 %threads, i64 %epoch, ptr %notes,
    ptr %loops) #1 {
entry:
  %moved = alloca [72 x i64], align 64
  %unused = alloca i64
  %began = alloca i64
  %leader = icmp eq i64 %thread, 0
  %note = icmp ne ptr %notes, null
  %several = shl i64 %threads, 2
  %alone = icmp eq i64 %threads, 1
  %parts = select i1 %alone, i64 1, i64 %several
  %round = sub i64 %parts, 1
  %plain = icmp eq ptr %loops, null
  %words = select i1 %plain, i64 2, i64 3
  %any = icmp slt i64 %first, %last
  br i1 %any, label %next, label %end
next:
  %l = phi i64 [ %first, %entry ], [ %following, %done ], [ %after.loop, %left.out ]
  %step = phi i64 [ 0, %entry ], [ %next.step, %done ], [ 0, %left.out ]
  %previous = phi i64 [ -1, %entry ], [ %l, %done ], [ %end.loop, %left.out ]
  %needed = phi i64 [ 0, %entry ], [ %whole, %done ], [ %whole.loop, %left.out ]
  %at = getelementptr { ptr, ptr, i64, ptr }, ptr %table, i64 %l
  %argumentsat = getelementptr { ptr, ptr, i64, ptr }, ptr %table, i64 %l, i32 1
  %tasksat = getelementptr { ptr, ptr, i64, ptr }, ptr %table, i64 %l, i32 2
  %stateat = getelementptr { ptr, ptr, i64, ptr }, ptr %table, i64 %l, i32 3
  %fn = load ptr, ptr %at
  %given = load ptr, ptr %argumentsat
  %tasks = load i64, ptr %tasksat
  %state = load ptr, ptr %stateat
  %doneat = getelementptr i8, ptr %state, i64 64
  %noteat = mul i64 %l, %words
  br i1 %plain, label %enter, label %find
find:
  %loopat = getelementptr ptr, ptr %loops, i64 %l
  %found = load ptr, ptr %loopat
  br label %enter
enter:
  %loop = phi ptr [ null, %next ], [ %found, %find ]
  %once = icmp eq ptr %loop, null
  br i1 %once, label %wait, label %which
which:
  %countat = getelementptr i64, ptr %loop, i64 2
  %count.loop = load i64, ptr %countat
  %aloneat = getelementptr i64, ptr %loop, i64 3
  %alone.word = load i64, ptr %aloneat
  %alone.loop = trunc i64 %alone.word to i1
  %by.one = or i1 %alone, %alone.loop
  br i1 %by.one, label %left.to, label %move
left.to:
  %lastat = getelementptr i64, ptr %loop, i64 1
  %after.loop = load i64, ptr %lastat
  %end.loop = sub i64 %after.loop, 1
  %endtasksat = getelementptr { ptr, ptr, i64, ptr }, ptr %table, i64 %end.loop, i32 2
  %endtasks = load i64, ptr %endtasksat
  %tasks.loop = mul i64 %endtasks, %count.loop
  %whole.loop = add i64 %tasks.loop, 1
  br i1 %leader, label %before.loop, label %left.out
before.loop:
  %begins = icmp eq i64 %l, %first
  br i1 %begins, label %run.loop, label %wait.loop
wait.loop:
  %current.loop = call i1 @gc_wait(ptr %table, i64 %previous, i64 %needed, ptr %context, ptr %state, i64 %epoch, i1 true)
  br label %run.loop
run.loop:
  call void @gc_steps(ptr %table, i64 %l, i64 %after.loop, ptr %context, ptr %loops, ptr %notes, ptr %moved)
  %endstateat = getelementptr { ptr, ptr, i64, ptr }, ptr %table, i64 %end.loop, i32 3
  %endstate = load ptr, ptr %endstateat
  %enddoneat = getelementptr i8, ptr %endstate, i64 64
  store atomic i64 %whole.loop, ptr %enddoneat release, align 8
  br label %left.out
left.out:
  %more.loop = icmp slt i64 %after.loop, %last
  br i1 %more.loop, label %next, label %over
move:
  call void @gc_moved(ptr %given, ptr %loop, i64 %step, ptr %moved)
  br label %wait
wait:
  %arguments = phi ptr [ %given, %enter ], [ %moved, %move ]
  %isfirst = icmp eq i64 %previous, -1
  br i1 %isfirst, label %ready, label %before
before:
  %current = call i1 @gc_wait(ptr %table, i64 %previous, i64 %needed, ptr %context, ptr %state, i64 %epoch, i1 %leader)
  br i1 %current, label %ready, label %end
ready:
  %padded = add i64 %tasks, %round
  %chunk = udiv i64 %padded, %parts
  br i1 %note, label %noting, label %owner
noting:
  %now = CYCLES
  store i64 %now, ptr %began
  %nowat = getelementptr i64, ptr %notes, i64 %noteat
  %earlier = load i64, ptr %nowat
  %starts = icmp eq i64 %step, 0
  %start = select i1 %starts, i64 %now, i64 %earlier
  store i64 %start, ptr %nowat
  br label %owner
owner:
  %whose = phi i64 [ %thread, %ready ], [ %thread, %noting ], [ %another, %empty ]
  %tried = phi i64 [ 0, %ready ], [ 0, %noting ], [ %visited, %empty ]
  %line = shl i64 %whose, 7
  %next.of = getelementptr i8, ptr %state, i64 %line
  %after = add i64 %whose, 1
  %shares = mul i64 %tasks, %after
  %own.limit = udiv i64 %shares, %threads
  %sharesbefore = mul i64 %tasks, %whose
  %own.first = udiv i64 %sharesbefore, %threads
  %part = sub i64 %own.limit, %own.first
  %earlier.steps = mul i64 %part, %step
  %limit = add i64 %own.limit, %earlier.steps
  br label %claim
claim:
  %claimed = load atomic i64, ptr %next.of acquire, align 8
  %run = lshr i64 %claimed, 32
  %mine = icmp eq i64 %run, %epoch
  br i1 %mine, label %look, label %end
look:
  %task = and i64 %claimed, 4294967295
  %left = icmp slt i64 %task, %limit
  br i1 %left, label %take, label %empty
empty:
  %visited = add i64 %tried, 1
  %wraps = icmp eq i64 %after, %threads
  %another = select i1 %wraps, i64 0, i64 %after
  %others = icmp slt i64 %visited, %threads
  br i1 %others, label %owner, label %idle
idle:
  br i1 %note, label %idle.note, label %done
idle.note:
  %ceased = CYCLES
  %ceasednumber = add i64 %noteat, 1
  %ceasedat = getelementptr i64, ptr %notes, i64 %ceasednumber
  store i64 %ceased, ptr %ceasedat
  %busynumber = add i64 %noteat, 2
  %busyat = getelementptr i64, ptr %notes, i64 %busynumber
  %busyplace = select i1 %plain, ptr %unused, ptr %busyat
  %begun = load i64, ptr %began
  %spent = sub i64 %ceased, %begun
  %busy = load i64, ptr %busyplace
  %busier = add i64 %busy, %spent
  store i64 %busier, ptr %busyplace
  br label %done
take:
  %rest = sub i64 %limit, %task
  %count = call i64 @llvm.smin.i64(i64 %rest, i64 %chunk)
  %changed = add i64 %claimed, %count
  %exchange = cmpxchg ptr %next.of, i64 %claimed, i64 %changed acq_rel monotonic, align 8
  %won = extractvalue { i64, i1 } %exchange, 1
  br i1 %won, label %work, label %claim
work:
  %halted = call i1 @gc_halted(ptr %context)
  br i1 %halted, label %worked, label %compute
compute:
  %from = sub i64 %task, %earlier.steps
  %stop = add i64 %from, %count
  call void %fn(ptr %arguments, i64 %from, i64 %stop)
  br label %worked
worked:
  %old = atomicrmw add ptr %doneat, i64 %count acq_rel, align 8
  br label %claim
done:
  %steps = add i64 %step, 1
  %whole = mul i64 %tasks, %steps
  %onward = call { i64, i64 } @gc_onward(i64 %l, i64 %step, ptr %loop)
  %following = extractvalue { i64, i64 } %onward, 0
  %next.step = extractvalue { i64, i64 } %onward, 1
  %more = icmp slt i64 %following, %last
  br i1 %more, label %next, label %over
over:
  %final = phi i64 [ %l, %done ], [ %end.loop, %left.out ]
  %all = phi i64 [ %whole, %done ], [ %whole.loop, %left.out ]
  br i1 %leader, label %finish, label %end
finish:
  %complete = call i1 @gc_wait(ptr %table, i64 %final, i64 %all, ptr %context, ptr %state, i64 %epoch, i1 %leader)
  br i1 %note, label %last.note, label %end
last.note:
  %finished = CYCLES
  %finishedat = getelementptr i8, ptr %context, i64 40
  store i64 %finished, ptr %finishedat
  br label %end
end:
  ret void
}

; gc_run_loops, then listens to a bell for the next run: until the word there is no longer %known, or so many spins are over.
; After the bell it waits for %delay spins more: whoever rings is about to give up the interpreter's lock, which this thread
; wants.
define void @gc_help(ptr %table, i64 %first, i64 %last, ptr %context, i64 %thread, i64 %threads, i64 %epoch, ptr %notes,
    ptr %loops, ptr %bell, i64 %known, i64 %spins, i64 %delay) #1 {
entry:
  call void @gc_run_loops(ptr %table, i64 %first, i64 %last, ptr %context, i64 %thread, i64 %threads, i64 %epoch, ptr %notes,
    ptr %loops)
  br label %listen
listen:
  %n = phi i64 [ 0, %entry ], [ %more, %silent ]
  %heard = load atomic i64, ptr %bell acquire, align 8
  %rung = icmp ne i64 %heard, %known
  br i1 %rung, label %wait, label %silent
silent:
  PAUSE
  %more = add i64 %n, 1
  %patient = icmp slt i64 %more, %spins
  br i1 %patient, label %listen, label %end
wait:
  %left = phi i64 [ %delay, %listen ], [ %less, %on ]
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %on, label %end
on:
  PAUSE
  %less = sub i64 %left, 1
  br label %wait
end:
  ret void
}

; the launch after launch l of a step, and its step
define internal { i64, i64 } @gc_onward(i64 %l, i64 %step, ptr %loop) alwaysinline #1 {
entry:
  %following = add i64 %l, 1
  %single = icmp eq ptr %loop, null
  br i1 %single, label %on, label %inside
inside:
  %lastat = getelementptr i64, ptr %loop, i64 1
  %last = load i64, ptr %lastat
  %ends = icmp eq i64 %following, %last
  br i1 %ends, label %again, label %on
again:
  %first = load i64, ptr %loop
  %countat = getelementptr i64, ptr %loop, i64 2
  %count = load i64, ptr %countat
  %steps = add i64 %step, 1
  %more = icmp slt i64 %steps, %count
  %back = select i1 %more, i64 %first, i64 %following
  %number = select i1 %more, i64 %steps, i64 0
  br label %on
on:
  %next = phi i64 [ %following, %entry ], [ %following, %inside ], [ %back, %again ]
  %at = phi i64 [ 0, %entry ], [ %step, %inside ], [ %number, %again ]
  %pair = insertvalue { i64, i64 } poison, i64 %next, 0
  %both = insertvalue { i64, i64 } %pair, i64 %at, 1
  ret { i64, i64 } %both
}

; the arguments of a launch in a step of its loop
define internal void @gc_moved(ptr %given, ptr %loop, i64 %step, ptr %moved) alwaysinline #1 {
entry:
  %countat = getelementptr i64, ptr %loop, i64 4
  %count = load i64, ptr %countat
  %advances = getelementptr i64, ptr %loop, i64 5
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %one, label %end
one:
  %k = phi i64 [ 0, %entry ], [ %following, %one ]
  %from = getelementptr i64, ptr %given, i64 %k
  %address = load i64, ptr %from
  %advanceat = getelementptr i64, ptr %advances, i64 %k
  %advance = load i64, ptr %advanceat
  %far = mul i64 %advance, %step
  %new = add i64 %address, %far
  %to = getelementptr i64, ptr %moved, i64 %k
  store i64 %new, ptr %to
  %following = add i64 %k, 1
  %more = icmp slt i64 %following, %count
  br i1 %more, label %one, label %end
end:
  ret void
}

; whether another thread wants this run to stop
define internal i1 @gc_halted(ptr %context) alwaysinline #1 {
entry:
  %haltat = getelementptr i8, ptr %context, i64 48
  %halt = load atomic i64, ptr %haltat monotonic, align 8
  %halted = icmp ne i64 %halt, 0
  ret i1 %halted
}

; all launches in the calling thread, loops included. It uses no state, so nothing has to be reset before
define void @gc_alone(ptr %table, i64 %first, i64 %last, ptr %context, ptr %notes, ptr %loops) #1 {
entry:
  %moved = alloca [72 x i64], align 64
  call void @gc_steps(ptr %table, i64 %first, i64 %last, ptr %context, ptr %loops, ptr %notes, ptr %moved)
  %note = icmp ne ptr %notes, null
  br i1 %note, label %last.note, label %end
last.note:
  %finished = CYCLES
  %finishedat = getelementptr i8, ptr %context, i64 40
  store i64 %finished, ptr %finishedat
  br label %end
end:
  ret void
}

; launches first .. last - 1 in one thread, and all steps of the loops among them. If odd steps of a loop run the tasks from the
; last to the first, they run an eighth of them at a time: what the step before read last is still in the cache
define internal void @gc_steps(ptr %table, i64 %first, i64 %last, ptr %context, ptr %loops, ptr %notes, ptr %moved) #1 {
entry:
  %unused = alloca i64
  %note = icmp ne ptr %notes, null
  %plain = icmp eq ptr %loops, null
  %words = select i1 %plain, i64 2, i64 3
  %any = icmp slt i64 %first, %last
  br i1 %any, label %launch, label %end
launch:
  %l = phi i64 [ %first, %entry ], [ %next, %onward ]
  %step = phi i64 [ 0, %entry ], [ %number, %onward ]
  %at = getelementptr { ptr, ptr, i64, ptr }, ptr %table, i64 %l
  %argumentsat = getelementptr { ptr, ptr, i64, ptr }, ptr %table, i64 %l, i32 1
  %tasksat = getelementptr { ptr, ptr, i64, ptr }, ptr %table, i64 %l, i32 2
  %fn = load ptr, ptr %at
  %given = load ptr, ptr %argumentsat
  %tasks = load i64, ptr %tasksat
  br i1 %plain, label %enter, label %find
find:
  %loopat = getelementptr ptr, ptr %loops, i64 %l
  %found = load ptr, ptr %loopat
  br label %enter
enter:
  %loop = phi ptr [ null, %launch ], [ %found, %find ]
  %once = icmp eq ptr %loop, null
  br i1 %once, label %ready, label %move
move:
  call void @gc_moved(ptr %given, ptr %loop, i64 %step, ptr %moved)
  %howat = getelementptr i64, ptr %loop, i64 3
  %how = load i64, ptr %howat
  %turns = lshr i64 %how, 1
  %turned = and i64 %turns, %step
  %backwards = trunc i64 %turned to i1
  br label %ready
ready:
  %arguments = phi ptr [ %given, %enter ], [ %moved, %move ]
  %odd = phi i1 [ false, %enter ], [ %backwards, %move ]
  br i1 %note, label %noted, label %silent
silent:
  call void @gc_tasks(ptr %fn, ptr %arguments, i64 %tasks, i1 %odd)
  br label %onward
noted:
  %begun = CYCLES
  call void @gc_tasks(ptr %fn, ptr %arguments, i64 %tasks, i1 %odd)
  %ceased = CYCLES
  %row = mul i64 %l, %words
  %noteat = getelementptr i64, ptr %notes, i64 %row
  %ceasedat = getelementptr i64, ptr %noteat, i64 1
  %busyat = getelementptr i64, ptr %noteat, i64 2
  %busyplace = select i1 %plain, ptr %unused, ptr %busyat
  %earlier = load i64, ptr %noteat
  %starts = icmp eq i64 %step, 0
  %start = select i1 %starts, i64 %begun, i64 %earlier
  store i64 %start, ptr %noteat
  store i64 %ceased, ptr %ceasedat
  %spent = sub i64 %ceased, %begun
  %busy = load i64, ptr %busyplace
  %busier = add i64 %busy, %spent
  store i64 %busier, ptr %busyplace
  br label %onward
onward:
  %pair = call { i64, i64 } @gc_onward(i64 %l, i64 %step, ptr %loop)
  %next = extractvalue { i64, i64 } %pair, 0
  %number = extractvalue { i64, i64 } %pair, 1
  %halted = call i1 @gc_halted(ptr %context)
  %left = icmp slt i64 %next, %last
  %on = xor i1 %halted, true
  %more = and i1 %left, %on
  br i1 %more, label %launch, label %end
end:
  ret void
}

; all tasks of a launch, from the first to the last or the other way around
define internal void @gc_tasks(ptr %fn, ptr %arguments, i64 %tasks, i1 %backwards) alwaysinline #1 {
entry:
  %any = icmp sgt i64 %tasks, 0
  br i1 %any, label %which, label %end
which:
  br i1 %backwards, label %back, label %straight
straight:
  call void %fn(ptr %arguments, i64 0, i64 %tasks)
  br label %end
back:
  %padded = add i64 %tasks, 7
  %chunk = lshr i64 %padded, 3
  br label %one
one:
  %stop = phi i64 [ %tasks, %back ], [ %from, %one ]
  %least = sub i64 %stop, %chunk
  %from = call i64 @llvm.smax.i64(i64 %least, i64 0)
  call void %fn(ptr %arguments, i64 %from, i64 %stop)
  %more = icmp sgt i64 %from, 0
  br i1 %more, label %one, label %end
end:
  ret void
}

; waits until so many tasks of launch l are done as are needed; false when %state belongs to another run
define internal i1 @gc_wait(ptr %table, i64 %l, i64 %needed, ptr %context, ptr %state, i64 %epoch, i1 %leader) #1 {
entry:
  %stateat = getelementptr { ptr, ptr, i64, ptr }, ptr %table, i64 %l, i32 3
  %waited = load ptr, ptr %stateat
  %doneat = getelementptr i8, ptr %waited, i64 64
  %limitat = getelementptr i8, ptr %context, i64 8
  %limit = load i64, ptr %limitat
  br label %spin
spin:
  %spins = phi i64 [ 0, %entry ], [ %more, %pause ], [ %more, %yield ], [ %more, %sleep ]
  %done = load atomic i64, ptr %doneat acquire, align 8
  %complete = icmp sge i64 %done, %needed
  br i1 %complete, label %yes, label %check
check:
  %claimed = load atomic i64, ptr %state acquire, align 8
  %owner = lshr i64 %claimed, 32
  %mine = icmp eq i64 %owner, %epoch
  br i1 %mine, label %pause, label %no
pause:
  PAUSE
  %more = add i64 %spins, 1
  %patient = icmp slt i64 %more, %limit
  br i1 %patient, label %spin, label %tired
tired:
  %sleepsat = getelementptr i8, ptr %context, i64 32
  %sleeps = load i64, ptr %sleepsat
  %early = icmp slt i64 %more, %sleeps
  %awake = or i1 %early, %leader
  br i1 %awake, label %yield, label %sleep
yield:
  %rest = load ptr, ptr %context
  call void %rest()
  br label %spin
sleep:
  %napat = getelementptr i8, ptr %context, i64 16
  %nap = load ptr, ptr %napat
  %timeat = getelementptr i8, ptr %context, i64 24
  %time = load i32, ptr %timeat
  call void %nap(i32 %time)
  br label %spin
yes:
  ret i1 true
no:
  ret i1 false
}
"""

# in programs that a process can load
BEGIN = """
; Lets launches first .. last - 1 begin for run number %epoch of %threads threads: no task is claimed or done. The table has
; states for %most threads; those above %threads get no tasks. Threads that are late for another run only look at its number, and
; those of this one are told of it later.
define void @gc_begin(ptr %table, i64 %first, i64 %last, i64 %epoch, i64 %threads, i64 %most) #1 {
entry:
  %run = shl i64 %epoch, 32
  %any = icmp slt i64 %first, %last
  br i1 %any, label %launch, label %end
launch:
  %l = phi i64 [ %first, %entry ], [ %next, %begun ]
  %next = add i64 %l, 1
  %tasksat = getelementptr { ptr, ptr, i64, ptr }, ptr %table, i64 %l, i32 2
  %stateat = getelementptr { ptr, ptr, i64, ptr }, ptr %table, i64 %l, i32 3
  %tasks = load i64, ptr %tasksat
  %state = load ptr, ptr %stateat
  %doneat = getelementptr i8, ptr %state, i64 64
  store atomic i64 0, ptr %doneat monotonic, align 8
  %each = udiv i64 %tasks, %threads
  %rest = urem i64 %tasks, %threads
  br label %part
part: ; own.first is tasks * thread / threads, and over what is left of that division
  %thread = phi i64 [ 0, %launch ], [ %following, %part ]
  %own.first = phi i64 [ 0, %launch ], [ %first.next, %part ]
  %over = phi i64 [ 0, %launch ], [ %over.next, %part ]
  %line = shl i64 %thread, 7
  %next.of = getelementptr i8, ptr %state, i64 %line
  %claimed = or i64 %run, %own.first
  store atomic i64 %claimed, ptr %next.of monotonic, align 8
  %following = add i64 %thread, 1
  %more = add i64 %over, %rest
  %carries = icmp uge i64 %more, %threads
  %carried = zext i1 %carries to i64
  %back = select i1 %carries, i64 %threads, i64 0
  %parts = add i64 %own.first, %each
  %further = add i64 %parts, %carried
  %over.next = sub i64 %more, %back
  %first.next = call i64 @llvm.smin.i64(i64 %further, i64 %tasks)
  %others = icmp slt i64 %following, %most
  br i1 %others, label %part, label %begun
begun:
  %left = icmp slt i64 %next, %last
  br i1 %left, label %launch, label %end
end:
  ret void
}
"""


def probes(target: Target) -> list[KernelSource]:
    """``gc_peak``, ``gc_copy`` and ``gc_nothing``, which ``gpucomp.runtime.ceilings`` runs."""
    return [_peak(target), _copy(target), _nothing()]


def _probe(code: Code, pointers: int) -> KernelSource:
    arguments = "".join(f"ptr %p{i}, " for i in range(pointers))
    text = code.function(f"define void @{code.name}({arguments}i64 %first, i64 %last) #0")
    return KernelSource(code.name, "llvm", text, Geometry((1, 1, 1)))


def _tasks(code: Code) -> tuple[Value, Value]:
    return code.argument("first", I64), code.argument("last", I64)


def _peak(target: Target) -> KernelSource:
    """Multiply-adds of f32 in registers.

    p0 is the factor and the addend. p1 receives the number of operations in a task and, 64 bytes later, the sums.
    """
    code = Code("gc_peak")
    lanes = target.limits.vector_bytes // 4
    type = Type("float", lanes)
    numbers, sink = code.argument("p0", PTR), code.argument("p1", PTR)
    factor = code.splat(code.load(numbers, F32), lanes)
    addend = code.splat(code.load(code.gep(numbers, 1, "float"), F32), lanes)
    chains = [code.slot(type) for _ in range(CHAINS)]
    for number, chain in enumerate(chains):
        chain.set(code.const(float(number), type))
    with code.loop(*_tasks(code)), code.loop(0, STEPS):
        for chain in chains:
            chain.set(chain.get().muladd(factor, addend))
    total = chains[0].get()
    for chain in chains[1:]:
        total = total + chain.get()
    code.store(code.integer(2 * lanes * CHAINS * STEPS), sink)
    code.store(total, code.gep(sink, 64, "i8"), 4)
    return _probe(code, 2)


def _copy(target: Target) -> KernelSource:
    """A task copies its part of p0 to p1.

    p2 has the bytes of a part, a multiple of four vectors, and the number of times that it is copied.
    """
    code = Code("gc_copy")
    nbytes = target.limits.vector_bytes
    type = Type("float", nbytes // 4)
    source, result, sizes = (code.argument(f"p{i}", PTR) for i in range(3))
    part = code.load(sizes, I64)
    times = code.load(code.gep(sizes, 1, "i64"), I64)
    with code.loop(*_tasks(code)) as task:
        start = task * part
        with code.loop(0, times), code.loop(start, start + part, COPIED_AT_ONCE * nbytes) as at:
            offsets = [at + k * nbytes for k in range(COPIED_AT_ONCE)]
            vectors = [code.load(code.gep(source, offset, "i8"), type, nbytes) for offset in offsets]
            for vector, offset in zip(vectors, offsets, strict=True):
                code.store(vector, code.gep(result, offset, "i8"), nbytes)
    return _probe(code, 3)


def _nothing() -> KernelSource:
    return _probe(Code("gc_nothing"), 0)
