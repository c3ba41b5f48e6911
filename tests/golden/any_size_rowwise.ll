; softmax
; problem   rows=150 cols=8 costly=1  (an example: each run decides its sizes)
; schedule  lanes=8 tasks=64 unroll=0 copies=1
; engine    rowwise

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %s1 = alloca [16 x float], align 64
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %s6 = alloca <8 x float>
  %s23 = alloca <8 x float>
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
  %v11 = call nsz <8 x float> @llvm.maximum.v8f32(<8 x float> %v10, <8 x float> %v9)
  store <8 x float> %v11, ptr %s6
  %v12 = load <8 x float>, ptr %s6
  %v13 = shufflevector <8 x float> %v12, <8 x float> %v12, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v14 = shufflevector <8 x float> %v12, <8 x float> %v12, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v15 = call nsz <4 x float> @llvm.maximum.v4f32(<4 x float> %v13, <4 x float> %v14)
  %v16 = shufflevector <4 x float> %v15, <4 x float> %v15, <2 x i32> <i32 0, i32 1>
  %v17 = shufflevector <4 x float> %v15, <4 x float> %v15, <2 x i32> <i32 2, i32 3>
  %v18 = call nsz <2 x float> @llvm.maximum.v2f32(<2 x float> %v16, <2 x float> %v17)
  %v19 = shufflevector <2 x float> %v18, <2 x float> %v18, <1 x i32> <i32 0>
  %v20 = shufflevector <2 x float> %v18, <2 x float> %v18, <1 x i32> <i32 1>
  %v21 = call nsz <1 x float> @llvm.maximum.v1f32(<1 x float> %v19, <1 x float> %v20)
  %v22 = extractelement <1 x float> %v21, i32 0
  store <8 x float> splat (float 0x0000000000000000), ptr %s23
  %v24 = load <8 x float>, ptr %v8, align 4
  %v25 = insertelement <8 x float> poison, float %v22, i32 0
  %v26 = shufflevector <8 x float> %v25, <8 x float> poison, <8 x i32> zeroinitializer
  %v27 = fsub contract <8 x float> %v24, %v26
  %v28 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v27, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000FE0000000))
  %v29 = fsub <8 x float> %v28, splat (float 0x4168000FE0000000)
  %v30 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v29, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %v27)
  %v31 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v29, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %v30)
  %v32 = bitcast <8 x float> %v28 to <8 x i32>
  %v33 = shl <8 x i32> %v32, splat (i32 23)
  %v34 = bitcast <8 x i32> %v33 to <8 x float>
  %v35 = fcmp uge <8 x float> %v27, splat (float 0xC055D58A00000000)
  %v36 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F56D10FC0000000), <8 x float> %v31, <8 x float> splat (float 0x3F8120B620000000))
  %v37 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v36, <8 x float> %v31, <8 x float> splat (float 0x3FA55551A0000000))
  %v38 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v37, <8 x float> %v31, <8 x float> splat (float 0x3FC5554DE0000000))
  %v39 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v38, <8 x float> %v31, <8 x float> splat (float 0x3FE0000000000000))
  %v40 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v39, <8 x float> %v31, <8 x float> splat (float 0x3FF0000000000000))
  %v41 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v40, <8 x float> %v31, <8 x float> splat (float 0x3FF0000000000000))
  %v42 = fmul <8 x float> %v41, %v34
  %v43 = select <8 x i1> %v35, <8 x float> %v42, <8 x float> splat (float 0x0000000000000000)
  store <8 x float> %v43, ptr %s1, align 4
  %v44 = load <8 x float>, ptr %s23
  %v45 = fadd contract <8 x float> %v44, %v43
  store <8 x float> %v45, ptr %s23
  %v46 = load <8 x float>, ptr %s23
  %v47 = shufflevector <8 x float> %v46, <8 x float> %v46, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v48 = shufflevector <8 x float> %v46, <8 x float> %v46, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v49 = fadd contract <4 x float> %v47, %v48
  %v50 = shufflevector <4 x float> %v49, <4 x float> %v49, <2 x i32> <i32 0, i32 1>
  %v51 = shufflevector <4 x float> %v49, <4 x float> %v49, <2 x i32> <i32 2, i32 3>
  %v52 = fadd contract <2 x float> %v50, %v51
  %v53 = shufflevector <2 x float> %v52, <2 x float> %v52, <1 x i32> <i32 0>
  %v54 = shufflevector <2 x float> %v52, <2 x float> %v52, <1 x i32> <i32 1>
  %v55 = fadd contract <1 x float> %v53, %v54
  %v56 = extractelement <1 x float> %v55, i32 0
  %v57 = fdiv float 0x3FF0000000000000, %v56
  %v58 = getelementptr float, ptr %p2, i64 %l5.i
  store float %v22, ptr %v58
  %v59 = load <8 x float>, ptr %s1, align 4
  %v60 = insertelement <8 x float> poison, float %v57, i32 0
  %v61 = shufflevector <8 x float> %v60, <8 x float> poison, <8 x i32> zeroinitializer
  %v62 = fmul contract <8 x float> %v59, %v61
  %v63 = getelementptr float, ptr %p1, i64 %v7
  store <8 x float> %v62, ptr %v63, align 4
  %l5.next = add nuw nsw i64 %l5.i, 1
  %v64 = icmp slt i64 %l5.next, %size0
  br i1 %v64, label %l5.body, label %l5.end
l5.end:
  %l3.next = add nuw nsw i64 %l3.i, 1
  %v65 = icmp slt i64 %l3.next, %last
  br i1 %v65, label %l3.body, label %l3.end
l3.end:
  ret void
}
