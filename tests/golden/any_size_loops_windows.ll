; depthwise 3x1 8
; problem   lead=450 out_y=1 out_x=1 channels=8 taps_y=1 taps_x=3 stride_x=1 dilation_x=1 low_x=0 high_x=3 weighted=1  (an example: each run decides its sizes)
; schedule  lanes=8 tile_x=1 vectors=1 tasks=64
; engine    loops/windows

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %p5, i64 %first, i64 %last) #1 {
  %mode = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  %before = load i32, ptr %mode
  %flushing = or i32 %before, 32832
  store i32 %flushing, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  call void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %p5, i64 %first, i64 %last)
  store i32 %before, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  ret void
}

define internal void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %p5, i64 %first, i64 %last) #0 {
entry:
  %s9 = alloca <8 x float>
  %v2 = icmp slt i64 %first, %last
  br i1 %v2, label %l1.body, label %l1.end
l1.body:
  %l1.i = phi i64 [ %first, %entry ], [ %l1.next, %l5.end ]
  %v3 = urem i64 %l1.i, 3
  %v4 = udiv i64 %l1.i, 3
  %v6 = icmp slt i64 0, 1
  br i1 %v6, label %l5.body, label %l5.end
l5.body:
  %l5.i = phi i64 [ 0, %l1.body ], [ %l5.next, %l7.end ]
  %v8 = icmp slt i64 0, 8
  br i1 %v8, label %l7.body, label %l7.end
l7.body:
  %l7.i = phi i64 [ 0, %l5.body ], [ %l7.next, %l7.body ]
  store <8 x float> splat (float 0x0000000000000000), ptr %s9
  %v10 = getelementptr float, ptr %p1, i64 %l7.i
  %v11 = load <8 x float>, ptr %s9
  %v12 = mul i64 %v4, 72
  %v13 = mul i64 %l5.i, 24
  %v14 = add i64 %v12, %v13
  %v15 = mul i64 %v3, 8
  %v16 = add i64 %v14, %v15
  %v17 = add i64 %v16, %l7.i
  %v18 = getelementptr float, ptr %p0, i64 %v17
  %v19 = load <8 x float>, ptr %v18, align 4
  %v20 = fcmp olt <8 x float> %v19, splat (float 0xBFF0000000000000)
  %v21 = select <8 x i1> %v20, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v19
  %v22 = load <8 x float>, ptr %v10, align 4
  %v23 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v21, <8 x float> %v22, <8 x float> %v11)
  %v24 = add i64 %l5.i, 1
  %v25 = mul i64 %v4, 72
  %v26 = mul i64 %v24, 24
  %v27 = add i64 %v25, %v26
  %v28 = mul i64 %v3, 8
  %v29 = add i64 %v27, %v28
  %v30 = add i64 %v29, %l7.i
  %v31 = getelementptr float, ptr %p0, i64 %v30
  %v32 = load <8 x float>, ptr %v31, align 4
  %v33 = fcmp olt <8 x float> %v32, splat (float 0xBFF0000000000000)
  %v34 = select <8 x i1> %v33, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v32
  %v35 = getelementptr float, ptr %v10, i64 8
  %v36 = load <8 x float>, ptr %v35, align 4
  %v37 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v34, <8 x float> %v36, <8 x float> %v23)
  %v38 = add i64 %l5.i, 2
  %v39 = mul i64 %v4, 72
  %v40 = mul i64 %v38, 24
  %v41 = add i64 %v39, %v40
  %v42 = mul i64 %v3, 8
  %v43 = add i64 %v41, %v42
  %v44 = add i64 %v43, %l7.i
  %v45 = getelementptr float, ptr %p0, i64 %v44
  %v46 = load <8 x float>, ptr %v45, align 4
  %v47 = fcmp olt <8 x float> %v46, splat (float 0xBFF0000000000000)
  %v48 = select <8 x i1> %v47, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v46
  %v49 = getelementptr float, ptr %v10, i64 16
  %v50 = load <8 x float>, ptr %v49, align 4
  %v51 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v48, <8 x float> %v50, <8 x float> %v37)
  store <8 x float> %v51, ptr %s9
  %v52 = load <8 x float>, ptr %s9
  %v53 = mul i64 %v4, 24
  %v54 = mul i64 %v3, 8
  %v55 = add i64 %v53, %v54
  %v56 = add i64 %v55, %l7.i
  %v57 = getelementptr float, ptr %p2, i64 %l7.i
  %v58 = load <8 x float>, ptr %v57, align 4
  %v59 = fadd contract <8 x float> %v52, %v58
  %v60 = fcmp olt <8 x float> %v59, splat (float 0x0000000000000000)
  %v61 = select <8 x i1> %v60, <8 x float> splat (float 0x0000000000000000), <8 x float> %v59
  %v62 = getelementptr float, ptr %p3, i64 %v56
  %v63 = load <8 x float>, ptr %v62, align 4
  %v64 = fadd contract <8 x float> %v61, %v63
  %v65 = getelementptr float, ptr %p4, i64 %v56
  store <8 x float> %v64, ptr %v65, align 4
  %v66 = getelementptr float, ptr %p5, i64 %v56
  store <8 x float> %v52, ptr %v66, align 4
  %l7.next = add nuw nsw i64 %l7.i, 8
  %v67 = icmp slt i64 %l7.next, 8
  br i1 %v67, label %l7.body, label %l7.end
l7.end:
  %l5.next = add nuw nsw i64 %l5.i, 1
  %v68 = icmp slt i64 %l5.next, 1
  br i1 %v68, label %l5.body, label %l5.end
l5.end:
  %l1.next = add nuw nsw i64 %l1.i, 1
  %v69 = icmp slt i64 %l1.next, %last
  br i1 %v69, label %l1.body, label %l1.end
l1.end:
  ret void
}
