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
  %s39 = alloca <8 x float>
  %v3 = icmp slt i64 %first, %last
  br i1 %v3, label %l2.body, label %l2.end
l2.body:
  %l2.i = phi i64 [ %first, %entry ], [ %l2.next, %l4.end ]
  %v5 = icmp slt i64 0, %size0
  br i1 %v5, label %l4.body, label %l4.end
l4.body:
  %l4.i = phi i64 [ 0, %l2.body ], [ %l4.next, %l96.end ]
  store <8 x float> splat (float 0xFFF0000000000000), ptr %s6
  %v8 = icmp slt i64 0, 8
  br i1 %v8, label %l7.body, label %l7.end
l7.body:
  %l7.i = phi i64 [ 0, %l4.body ], [ %l7.next, %l7.body ]
  %v9 = mul i64 %l4.i, 8
  %v10 = add i64 %v9, %l7.i
  %v11 = getelementptr float, ptr %p0, i64 %v10
  %v12 = load <8 x float>, ptr %v11, align 4
  %v13 = load <8 x float>, ptr %s6
  %v14 = fcmp ogt <8 x float> %v13, %v12
  %v15 = fcmp uno <8 x float> %v13, %v13
  %v16 = select <8 x i1> %v14, <8 x float> %v13, <8 x float> %v12
  %v17 = select <8 x i1> %v15, <8 x float> %v13, <8 x float> %v16
  store <8 x float> %v17, ptr %s6
  %l7.next = add nuw nsw i64 %l7.i, 8
  %v18 = icmp slt i64 %l7.next, 8
  br i1 %v18, label %l7.body, label %l7.end
l7.end:
  %v19 = load <8 x float>, ptr %s6
  %v20 = shufflevector <8 x float> %v19, <8 x float> %v19, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v21 = shufflevector <8 x float> %v19, <8 x float> %v19, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v22 = fcmp ogt <4 x float> %v20, %v21
  %v23 = fcmp uno <4 x float> %v20, %v20
  %v24 = select <4 x i1> %v22, <4 x float> %v20, <4 x float> %v21
  %v25 = select <4 x i1> %v23, <4 x float> %v20, <4 x float> %v24
  %v26 = shufflevector <4 x float> %v25, <4 x float> %v25, <2 x i32> <i32 0, i32 1>
  %v27 = shufflevector <4 x float> %v25, <4 x float> %v25, <2 x i32> <i32 2, i32 3>
  %v28 = fcmp ogt <2 x float> %v26, %v27
  %v29 = fcmp uno <2 x float> %v26, %v26
  %v30 = select <2 x i1> %v28, <2 x float> %v26, <2 x float> %v27
  %v31 = select <2 x i1> %v29, <2 x float> %v26, <2 x float> %v30
  %v32 = shufflevector <2 x float> %v31, <2 x float> %v31, <1 x i32> <i32 0>
  %v33 = shufflevector <2 x float> %v31, <2 x float> %v31, <1 x i32> <i32 1>
  %v34 = fcmp ogt <1 x float> %v32, %v33
  %v35 = fcmp uno <1 x float> %v32, %v32
  %v36 = select <1 x i1> %v34, <1 x float> %v32, <1 x float> %v33
  %v37 = select <1 x i1> %v35, <1 x float> %v32, <1 x float> %v36
  %v38 = extractelement <1 x float> %v37, i32 0
  store <8 x float> splat (float 0x0000000000000000), ptr %s39
  %v41 = icmp slt i64 0, 8
  br i1 %v41, label %l40.body, label %l40.end
l40.body:
  %l40.i = phi i64 [ 0, %l7.end ], [ %l40.next, %l40.body ]
  %v42 = mul i64 %l4.i, 8
  %v43 = add i64 %v42, %l40.i
  %v44 = getelementptr float, ptr %p0, i64 %v43
  %v45 = load <8 x float>, ptr %v44, align 4
  %v46 = insertelement <8 x float> poison, float %v38, i32 0
  %v47 = shufflevector <8 x float> %v46, <8 x float> poison, <8 x i32> zeroinitializer
  %v48 = fsub contract <8 x float> %v45, %v47
  %v49 = fcmp olt <8 x float> %v48, splat (float 0xC05A000000000000)
  %v50 = select <8 x i1> %v49, <8 x float> splat (float 0x0000000000000000), <8 x float> %v48
  %v51 = fcmp ogt <8 x float> %v50, splat (float 0x4056400000000000)
  %v52 = select <8 x i1> %v51, <8 x float> splat (float 0x4056400000000000), <8 x float> %v50
  %v53 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v52, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000000000000))
  %v54 = fsub <8 x float> %v53, splat (float 0x4168000000000000)
  %v55 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v54, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %v52)
  %v56 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v54, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %v55)
  %v57 = fmul <8 x float> %v56, %v56
  %v58 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F2A12A420000000), <8 x float> %v56, <8 x float> splat (float 0x3F56D49200000000))
  %v59 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v58, <8 x float> %v56, <8 x float> splat (float 0x3F81110E00000000))
  %v60 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v59, <8 x float> %v56, <8 x float> splat (float 0x3FA5554E40000000))
  %v61 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v60, <8 x float> %v56, <8 x float> splat (float 0x3FC5555560000000))
  %v62 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v61, <8 x float> %v56, <8 x float> splat (float 0x3FE0000000000000))
  %v63 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v57, <8 x float> %v62, <8 x float> %v56)
  %v64 = bitcast <8 x float> splat (float 0x4168000000000000) to <8 x i32>
  %v65 = bitcast <8 x float> %v53 to <8 x i32>
  %v66 = sub <8 x i32> %v65, %v64
  %v67 = ashr <8 x i32> %v66, splat (i32 1)
  %v68 = fadd <8 x float> %v63, splat (float 0x3FF0000000000000)
  %v69 = add <8 x i32> %v67, splat (i32 127)
  %v70 = shl <8 x i32> %v69, splat (i32 23)
  %v71 = bitcast <8 x i32> %v70 to <8 x float>
  %v72 = fmul <8 x float> %v68, %v71
  %v73 = sub <8 x i32> %v66, %v67
  %v74 = add <8 x i32> %v73, splat (i32 127)
  %v75 = shl <8 x i32> %v74, splat (i32 23)
  %v76 = bitcast <8 x i32> %v75 to <8 x float>
  %v77 = fmul <8 x float> %v72, %v76
  %v78 = select <8 x i1> %v49, <8 x float> splat (float 0x0000000000000000), <8 x float> %v77
  %v79 = getelementptr float, ptr %s1, i64 %l40.i
  store <8 x float> %v78, ptr %v79, align 4
  %v80 = load <8 x float>, ptr %s39
  %v81 = fadd contract <8 x float> %v80, %v78
  store <8 x float> %v81, ptr %s39
  %l40.next = add nuw nsw i64 %l40.i, 8
  %v82 = icmp slt i64 %l40.next, 8
  br i1 %v82, label %l40.body, label %l40.end
l40.end:
  %v83 = load <8 x float>, ptr %s39
  %v84 = shufflevector <8 x float> %v83, <8 x float> %v83, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v85 = shufflevector <8 x float> %v83, <8 x float> %v83, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v86 = fadd contract <4 x float> %v84, %v85
  %v87 = shufflevector <4 x float> %v86, <4 x float> %v86, <2 x i32> <i32 0, i32 1>
  %v88 = shufflevector <4 x float> %v86, <4 x float> %v86, <2 x i32> <i32 2, i32 3>
  %v89 = fadd contract <2 x float> %v87, %v88
  %v90 = shufflevector <2 x float> %v89, <2 x float> %v89, <1 x i32> <i32 0>
  %v91 = shufflevector <2 x float> %v89, <2 x float> %v89, <1 x i32> <i32 1>
  %v92 = fadd contract <1 x float> %v90, %v91
  %v93 = extractelement <1 x float> %v92, i32 0
  %v94 = fdiv float 0x3FF0000000000000, %v93
  %v95 = getelementptr float, ptr %p2, i64 %l4.i
  store float %v38, ptr %v95
  %v97 = icmp slt i64 0, 8
  br i1 %v97, label %l96.body, label %l96.end
l96.body:
  %l96.i = phi i64 [ 0, %l40.end ], [ %l96.next, %l96.body ]
  %v98 = getelementptr float, ptr %s1, i64 %l96.i
  %v99 = load <8 x float>, ptr %v98, align 4
  %v100 = mul i64 %l4.i, 8
  %v101 = add i64 %v100, %l96.i
  %v102 = insertelement <8 x float> poison, float %v94, i32 0
  %v103 = shufflevector <8 x float> %v102, <8 x float> poison, <8 x i32> zeroinitializer
  %v104 = fmul contract <8 x float> %v99, %v103
  %v105 = getelementptr float, ptr %p1, i64 %v101
  store <8 x float> %v104, ptr %v105, align 4
  %l96.next = add nuw nsw i64 %l96.i, 8
  %v106 = icmp slt i64 %l96.next, 8
  br i1 %v106, label %l96.body, label %l96.end
l96.end:
  %l4.next = add nuw nsw i64 %l4.i, 1
  %v107 = icmp slt i64 %l4.next, %size0
  br i1 %v107, label %l4.body, label %l4.end
l4.end:
  %l2.next = add nuw nsw i64 %l2.i, 1
  %v108 = icmp slt i64 %l2.next, %last
  br i1 %v108, label %l2.body, label %l2.end
l2.end:
  ret void
}
