; softmax
; problem   rows=150 cols=8  (an example: each run decides its sizes)
; schedule  lanes=8 tasks=64 unroll=0 copies=1
; engine    rowwise

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %s1 = alloca [16 x float], align 64
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %s6 = alloca <8 x float>
  %s35 = alloca <8 x float>
  %v2 = icmp slt i64 %first, %last
  br i1 %v2, label %l3.body, label %l3.end
l3.body:
  %l3.i = phi i64 [ %first, %entry ], [ %l3.next, %l5.end ]
  %v4 = icmp slt i64 0, %size0
  br i1 %v4, label %l5.body, label %l5.end
l5.body:
  %l5.i = phi i64 [ 0, %l3.body ], [ %l5.next, %l5.body ]
  store <8 x float> splat (float 0xFFF0000000000000), ptr %s6
  %v7 = mul i64 %l5.i, 8
  %v8 = getelementptr float, ptr %p0, i64 %v7
  %v9 = load <8 x float>, ptr %v8, align 4
  %v10 = load <8 x float>, ptr %s6
  %v11 = fcmp ogt <8 x float> %v10, %v9
  %v12 = fcmp uno <8 x float> %v10, %v10
  %v13 = select <8 x i1> %v11, <8 x float> %v10, <8 x float> %v9
  %v14 = select <8 x i1> %v12, <8 x float> %v10, <8 x float> %v13
  store <8 x float> %v14, ptr %s6
  %v15 = load <8 x float>, ptr %s6
  %v16 = shufflevector <8 x float> %v15, <8 x float> %v15, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v17 = shufflevector <8 x float> %v15, <8 x float> %v15, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v18 = fcmp ogt <4 x float> %v16, %v17
  %v19 = fcmp uno <4 x float> %v16, %v16
  %v20 = select <4 x i1> %v18, <4 x float> %v16, <4 x float> %v17
  %v21 = select <4 x i1> %v19, <4 x float> %v16, <4 x float> %v20
  %v22 = shufflevector <4 x float> %v21, <4 x float> %v21, <2 x i32> <i32 0, i32 1>
  %v23 = shufflevector <4 x float> %v21, <4 x float> %v21, <2 x i32> <i32 2, i32 3>
  %v24 = fcmp ogt <2 x float> %v22, %v23
  %v25 = fcmp uno <2 x float> %v22, %v22
  %v26 = select <2 x i1> %v24, <2 x float> %v22, <2 x float> %v23
  %v27 = select <2 x i1> %v25, <2 x float> %v22, <2 x float> %v26
  %v28 = shufflevector <2 x float> %v27, <2 x float> %v27, <1 x i32> <i32 0>
  %v29 = shufflevector <2 x float> %v27, <2 x float> %v27, <1 x i32> <i32 1>
  %v30 = fcmp ogt <1 x float> %v28, %v29
  %v31 = fcmp uno <1 x float> %v28, %v28
  %v32 = select <1 x i1> %v30, <1 x float> %v28, <1 x float> %v29
  %v33 = select <1 x i1> %v31, <1 x float> %v28, <1 x float> %v32
  %v34 = extractelement <1 x float> %v33, i32 0
  store <8 x float> splat (float 0x0000000000000000), ptr %s35
  %v36 = load <8 x float>, ptr %v8, align 4
  %v37 = insertelement <8 x float> poison, float %v34, i32 0
  %v38 = shufflevector <8 x float> %v37, <8 x float> poison, <8 x i32> zeroinitializer
  %v39 = fsub contract <8 x float> %v36, %v38
  %v40 = fcmp olt <8 x float> %v39, splat (float 0xC05A000000000000)
  %v41 = select <8 x i1> %v40, <8 x float> splat (float 0x0000000000000000), <8 x float> %v39
  %v42 = fcmp ogt <8 x float> %v41, splat (float 0x4056400000000000)
  %v43 = select <8 x i1> %v42, <8 x float> splat (float 0x4056400000000000), <8 x float> %v41
  %v44 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v43, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000000000000))
  %v45 = fsub <8 x float> %v44, splat (float 0x4168000000000000)
  %v46 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v45, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %v43)
  %v47 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v45, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %v46)
  %v48 = fmul <8 x float> %v47, %v47
  %v49 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F2A12A420000000), <8 x float> %v47, <8 x float> splat (float 0x3F56D49200000000))
  %v50 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v49, <8 x float> %v47, <8 x float> splat (float 0x3F81110E00000000))
  %v51 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v50, <8 x float> %v47, <8 x float> splat (float 0x3FA5554E40000000))
  %v52 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v51, <8 x float> %v47, <8 x float> splat (float 0x3FC5555560000000))
  %v53 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v52, <8 x float> %v47, <8 x float> splat (float 0x3FE0000000000000))
  %v54 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v48, <8 x float> %v53, <8 x float> %v47)
  %v55 = bitcast <8 x float> splat (float 0x4168000000000000) to <8 x i32>
  %v56 = bitcast <8 x float> %v44 to <8 x i32>
  %v57 = sub <8 x i32> %v56, %v55
  %v58 = ashr <8 x i32> %v57, splat (i32 1)
  %v59 = fadd <8 x float> %v54, splat (float 0x3FF0000000000000)
  %v60 = add <8 x i32> %v58, splat (i32 127)
  %v61 = shl <8 x i32> %v60, splat (i32 23)
  %v62 = bitcast <8 x i32> %v61 to <8 x float>
  %v63 = fmul <8 x float> %v59, %v62
  %v64 = sub <8 x i32> %v57, %v58
  %v65 = add <8 x i32> %v64, splat (i32 127)
  %v66 = shl <8 x i32> %v65, splat (i32 23)
  %v67 = bitcast <8 x i32> %v66 to <8 x float>
  %v68 = fmul <8 x float> %v63, %v67
  %v69 = select <8 x i1> %v40, <8 x float> splat (float 0x0000000000000000), <8 x float> %v68
  store <8 x float> %v69, ptr %s1, align 4
  %v70 = load <8 x float>, ptr %s35
  %v71 = fadd contract <8 x float> %v70, %v69
  store <8 x float> %v71, ptr %s35
  %v72 = load <8 x float>, ptr %s35
  %v73 = shufflevector <8 x float> %v72, <8 x float> %v72, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v74 = shufflevector <8 x float> %v72, <8 x float> %v72, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v75 = fadd contract <4 x float> %v73, %v74
  %v76 = shufflevector <4 x float> %v75, <4 x float> %v75, <2 x i32> <i32 0, i32 1>
  %v77 = shufflevector <4 x float> %v75, <4 x float> %v75, <2 x i32> <i32 2, i32 3>
  %v78 = fadd contract <2 x float> %v76, %v77
  %v79 = shufflevector <2 x float> %v78, <2 x float> %v78, <1 x i32> <i32 0>
  %v80 = shufflevector <2 x float> %v78, <2 x float> %v78, <1 x i32> <i32 1>
  %v81 = fadd contract <1 x float> %v79, %v80
  %v82 = extractelement <1 x float> %v81, i32 0
  %v83 = fdiv float 0x3FF0000000000000, %v82
  %v84 = getelementptr float, ptr %p2, i64 %l5.i
  store float %v34, ptr %v84
  %v85 = load <8 x float>, ptr %s1, align 4
  %v86 = insertelement <8 x float> poison, float %v83, i32 0
  %v87 = shufflevector <8 x float> %v86, <8 x float> poison, <8 x i32> zeroinitializer
  %v88 = fmul contract <8 x float> %v85, %v87
  %v89 = getelementptr float, ptr %p1, i64 %v7
  store <8 x float> %v88, ptr %v89, align 4
  %l5.next = add nuw nsw i64 %l5.i, 1
  %v90 = icmp slt i64 %l5.next, %size0
  br i1 %v90, label %l5.body, label %l5.end
l5.end:
  %l3.next = add nuw nsw i64 %l3.i, 1
  %v91 = icmp slt i64 %l3.next, %last
  br i1 %v91, label %l3.body, label %l3.end
l3.end:
  ret void
}
