; matmul nx8x8
; problem   batch=1 m=150 n=8 k=8 nbytes=4 form=0 rows=1 run=8 lines=0 span=1 b_place=0 b_along_k=0 b_constant=0 b_batched=0  (an example: each run decides its sizes)
; schedule  panels=1 pack_a=0 lanes=8 mr=1 nv=1 kc=512 tile_m=8 pack_b=0 unroll_k=1 ahead=0
; engine    contraction

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %sizes, i64 %first, i64 %last) #1 {
  %mode = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  %before = load i32, ptr %mode
  %flushing = or i32 %before, 32832
  store i32 %flushing, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  call void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %sizes, i64 %first, i64 %last)
  store i32 %before, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  ret void
}

define internal void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %size1.at = getelementptr i64, ptr %sizes, i64 1
  %size1 = load i64, ptr %size1.at, !invariant.load !{}
  %size2.at = getelementptr i64, ptr %sizes, i64 2
  %size2 = load i64, ptr %size2.at, !invariant.load !{}
  %size3.at = getelementptr i64, ptr %sizes, i64 3
  %size3 = load i64, ptr %size3.at, !invariant.load !{}
  %s14 = alloca <8 x float>
  %v1 = icmp slt i64 %first, %last
  br i1 %v1, label %l2.body, label %l2.end
l2.body:
  %l2.i = phi i64 [ %first, %entry ], [ %l2.next, %l13.end ]
  %v3 = and i64 %size0, 4294967295
  %v4 = and i64 %l2.i, 2147483647
  %v5 = mul i64 %v4, %v3
  %v6 = lshr i64 %v5, %size1
  %v7 = mul i64 %v6, %size2
  %v8 = sub i64 %l2.i, %v7
  %v9 = mul i64 %v8, 8
  %v10 = sub i64 %size3, %v9
  %v11 = call i64 @llvm.smin.i64(i64 %v10, i64 8)
  %v12 = icmp slt i64 0, %v11
  br i1 %v12, label %l13.body, label %l13.end
l13.body:
  %l13.i = phi i64 [ 0, %l2.body ], [ %l13.next, %l13.body ]
  store <8 x float> splat (float 0x0000000000000000), ptr %s14
  %v15 = add i64 %v9, %l13.i
  %v16 = mul i64 %v15, 8
  %v17 = getelementptr float, ptr %p3, i64 %v16
  %v18 = getelementptr float, ptr %p4, i64 %v16
  %v19 = getelementptr float, ptr %p0, i64 %v16
  %v20 = call ptr asm "", "=r,0"(ptr %v19)
  %v21 = load <8 x float>, ptr %p1, align 4
  %v22 = load float, ptr %v20
  %v23 = insertelement <8 x float> poison, float %v22, i32 0
  %v24 = shufflevector <8 x float> %v23, <8 x float> poison, <8 x i32> zeroinitializer
  %v25 = load <8 x float>, ptr %s14
  %v26 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v24, <8 x float> %v21, <8 x float> %v25)
  store <8 x float> %v26, ptr %s14
  call void asm sideeffect "", "~{memory}"()
  %v27 = getelementptr float, ptr %p1, i64 8
  %v28 = load <8 x float>, ptr %v27, align 4
  %v29 = getelementptr float, ptr %v20, i64 1
  %v30 = load float, ptr %v29
  %v31 = insertelement <8 x float> poison, float %v30, i32 0
  %v32 = shufflevector <8 x float> %v31, <8 x float> poison, <8 x i32> zeroinitializer
  %v33 = load <8 x float>, ptr %s14
  %v34 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v32, <8 x float> %v28, <8 x float> %v33)
  store <8 x float> %v34, ptr %s14
  call void asm sideeffect "", "~{memory}"()
  %v35 = getelementptr float, ptr %p1, i64 16
  %v36 = load <8 x float>, ptr %v35, align 4
  %v37 = getelementptr float, ptr %v20, i64 2
  %v38 = load float, ptr %v37
  %v39 = insertelement <8 x float> poison, float %v38, i32 0
  %v40 = shufflevector <8 x float> %v39, <8 x float> poison, <8 x i32> zeroinitializer
  %v41 = load <8 x float>, ptr %s14
  %v42 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v40, <8 x float> %v36, <8 x float> %v41)
  store <8 x float> %v42, ptr %s14
  call void asm sideeffect "", "~{memory}"()
  %v43 = getelementptr float, ptr %p1, i64 24
  %v44 = load <8 x float>, ptr %v43, align 4
  %v45 = getelementptr float, ptr %v20, i64 3
  %v46 = load float, ptr %v45
  %v47 = insertelement <8 x float> poison, float %v46, i32 0
  %v48 = shufflevector <8 x float> %v47, <8 x float> poison, <8 x i32> zeroinitializer
  %v49 = load <8 x float>, ptr %s14
  %v50 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v48, <8 x float> %v44, <8 x float> %v49)
  store <8 x float> %v50, ptr %s14
  call void asm sideeffect "", "~{memory}"()
  %v51 = getelementptr float, ptr %p1, i64 32
  %v52 = load <8 x float>, ptr %v51, align 4
  %v53 = getelementptr float, ptr %v20, i64 4
  %v54 = load float, ptr %v53
  %v55 = insertelement <8 x float> poison, float %v54, i32 0
  %v56 = shufflevector <8 x float> %v55, <8 x float> poison, <8 x i32> zeroinitializer
  %v57 = load <8 x float>, ptr %s14
  %v58 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v56, <8 x float> %v52, <8 x float> %v57)
  store <8 x float> %v58, ptr %s14
  call void asm sideeffect "", "~{memory}"()
  %v59 = getelementptr float, ptr %p1, i64 40
  %v60 = load <8 x float>, ptr %v59, align 4
  %v61 = getelementptr float, ptr %v20, i64 5
  %v62 = load float, ptr %v61
  %v63 = insertelement <8 x float> poison, float %v62, i32 0
  %v64 = shufflevector <8 x float> %v63, <8 x float> poison, <8 x i32> zeroinitializer
  %v65 = load <8 x float>, ptr %s14
  %v66 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v64, <8 x float> %v60, <8 x float> %v65)
  store <8 x float> %v66, ptr %s14
  call void asm sideeffect "", "~{memory}"()
  %v67 = getelementptr float, ptr %p1, i64 48
  %v68 = load <8 x float>, ptr %v67, align 4
  %v69 = getelementptr float, ptr %v20, i64 6
  %v70 = load float, ptr %v69
  %v71 = insertelement <8 x float> poison, float %v70, i32 0
  %v72 = shufflevector <8 x float> %v71, <8 x float> poison, <8 x i32> zeroinitializer
  %v73 = load <8 x float>, ptr %s14
  %v74 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v72, <8 x float> %v68, <8 x float> %v73)
  store <8 x float> %v74, ptr %s14
  call void asm sideeffect "", "~{memory}"()
  %v75 = getelementptr float, ptr %p1, i64 56
  %v76 = load <8 x float>, ptr %v75, align 4
  %v77 = getelementptr float, ptr %v20, i64 7
  %v78 = load float, ptr %v77
  %v79 = insertelement <8 x float> poison, float %v78, i32 0
  %v80 = shufflevector <8 x float> %v79, <8 x float> poison, <8 x i32> zeroinitializer
  %v81 = load <8 x float>, ptr %s14
  %v82 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v80, <8 x float> %v76, <8 x float> %v81)
  store <8 x float> %v82, ptr %s14
  %v83 = load <8 x float>, ptr %s14
  %v84 = load <8 x float>, ptr %p2, align 4
  %v85 = fadd contract <8 x float> %v83, %v84
  %v86 = fcmp olt <8 x float> %v85, splat (float 0x0000000000000000)
  %v87 = select <8 x i1> %v86, <8 x float> splat (float 0x0000000000000000), <8 x float> %v85
  %v88 = fadd contract <8 x float> %v87, %v87
  store <8 x float> %v87, ptr %v17, align 4
  store <8 x float> %v88, ptr %v18, align 4
  %l13.next = add nuw nsw i64 %l13.i, 1
  %v89 = icmp slt i64 %l13.next, %v11
  br i1 %v89, label %l13.body, label %l13.end
l13.end:
  %l2.next = add nuw nsw i64 %l2.i, 1
  %v90 = icmp slt i64 %l2.next, %last
  br i1 %v90, label %l2.body, label %l2.end
l2.end:
  ret void
}
