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
  %s18 = alloca <8 x float>
  %v2 = icmp slt i64 %first, %last
  br i1 %v2, label %l1.body, label %l1.end
l1.body:
  %l1.i = phi i64 [ %first, %entry ], [ %l1.next, %l14.end ]
  %v3 = and i64 %size0, 4294967295
  %v4 = and i64 %l1.i, 2147483647
  %v5 = mul i64 %v4, %v3
  %v6 = lshr i64 %v5, %size1
  %v7 = mul i64 %v6, %size2
  %v8 = sub i64 %l1.i, %v7
  %v9 = mul i64 %v8, 8
  %v10 = sub i64 %size3, %v9
  %v11 = call i64 @llvm.smin.i64(i64 %v10, i64 8)
  %v12 = call i64 @llvm.smin.i64(i64 1, i64 1)
  %v13 = call i64 @llvm.smin.i64(i64 %v12, i64 1)
  %v15 = icmp slt i64 0, %v13
  br i1 %v15, label %l14.body, label %l14.end
l14.body:
  %l14.i = phi i64 [ 0, %l1.body ], [ %l14.next, %l16.end ]
  %v17 = icmp slt i64 0, %v11
  br i1 %v17, label %l16.body, label %l16.end
l16.body:
  %l16.i = phi i64 [ 0, %l14.body ], [ %l16.next, %l16.body ]
  store <8 x float> splat (float 0x0000000000000000), ptr %s18
  %v19 = getelementptr float, ptr %p1, i64 0
  %v20 = getelementptr float, ptr %v19, i64 0
  %v21 = add i64 %v9, %l16.i
  %v22 = mul i64 %l14.i, 8
  %v23 = mul i64 %v21, 8
  %v24 = add i64 %v23, %v22
  %v25 = getelementptr float, ptr %p3, i64 %v24
  %v26 = mul i64 %v21, 8
  %v27 = add i64 %v26, %v22
  %v28 = getelementptr float, ptr %p4, i64 %v27
  %v29 = add i64 %v9, %l16.i
  %v30 = mul i64 %v29, 8
  %v31 = getelementptr float, ptr %p0, i64 %v30
  %v32 = getelementptr float, ptr %v31, i64 0
  %v33 = call ptr asm "", "=r,0"(ptr %v32)
  %v34 = getelementptr float, ptr %v20, i64 0
  %v35 = getelementptr float, ptr %v34, i64 0
  %v36 = load <8 x float>, ptr %v35, align 4
  %v37 = getelementptr float, ptr %v33, i64 0
  %v38 = getelementptr float, ptr %v37, i64 0
  %v39 = load float, ptr %v38
  %v40 = insertelement <8 x float> poison, float %v39, i32 0
  %v41 = shufflevector <8 x float> %v40, <8 x float> poison, <8 x i32> zeroinitializer
  %v42 = load <8 x float>, ptr %s18
  %v43 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v41, <8 x float> %v36, <8 x float> %v42)
  store <8 x float> %v43, ptr %s18
  call void asm sideeffect "", "~{memory}"()
  %v44 = getelementptr float, ptr %v20, i64 0
  %v45 = getelementptr float, ptr %v44, i64 8
  %v46 = load <8 x float>, ptr %v45, align 4
  %v47 = getelementptr float, ptr %v33, i64 0
  %v48 = getelementptr float, ptr %v47, i64 1
  %v49 = load float, ptr %v48
  %v50 = insertelement <8 x float> poison, float %v49, i32 0
  %v51 = shufflevector <8 x float> %v50, <8 x float> poison, <8 x i32> zeroinitializer
  %v52 = load <8 x float>, ptr %s18
  %v53 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v51, <8 x float> %v46, <8 x float> %v52)
  store <8 x float> %v53, ptr %s18
  call void asm sideeffect "", "~{memory}"()
  %v54 = getelementptr float, ptr %v20, i64 0
  %v55 = getelementptr float, ptr %v54, i64 16
  %v56 = load <8 x float>, ptr %v55, align 4
  %v57 = getelementptr float, ptr %v33, i64 0
  %v58 = getelementptr float, ptr %v57, i64 2
  %v59 = load float, ptr %v58
  %v60 = insertelement <8 x float> poison, float %v59, i32 0
  %v61 = shufflevector <8 x float> %v60, <8 x float> poison, <8 x i32> zeroinitializer
  %v62 = load <8 x float>, ptr %s18
  %v63 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v61, <8 x float> %v56, <8 x float> %v62)
  store <8 x float> %v63, ptr %s18
  call void asm sideeffect "", "~{memory}"()
  %v64 = getelementptr float, ptr %v20, i64 0
  %v65 = getelementptr float, ptr %v64, i64 24
  %v66 = load <8 x float>, ptr %v65, align 4
  %v67 = getelementptr float, ptr %v33, i64 0
  %v68 = getelementptr float, ptr %v67, i64 3
  %v69 = load float, ptr %v68
  %v70 = insertelement <8 x float> poison, float %v69, i32 0
  %v71 = shufflevector <8 x float> %v70, <8 x float> poison, <8 x i32> zeroinitializer
  %v72 = load <8 x float>, ptr %s18
  %v73 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v71, <8 x float> %v66, <8 x float> %v72)
  store <8 x float> %v73, ptr %s18
  call void asm sideeffect "", "~{memory}"()
  %v74 = getelementptr float, ptr %v20, i64 0
  %v75 = getelementptr float, ptr %v74, i64 32
  %v76 = load <8 x float>, ptr %v75, align 4
  %v77 = getelementptr float, ptr %v33, i64 0
  %v78 = getelementptr float, ptr %v77, i64 4
  %v79 = load float, ptr %v78
  %v80 = insertelement <8 x float> poison, float %v79, i32 0
  %v81 = shufflevector <8 x float> %v80, <8 x float> poison, <8 x i32> zeroinitializer
  %v82 = load <8 x float>, ptr %s18
  %v83 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v81, <8 x float> %v76, <8 x float> %v82)
  store <8 x float> %v83, ptr %s18
  call void asm sideeffect "", "~{memory}"()
  %v84 = getelementptr float, ptr %v20, i64 0
  %v85 = getelementptr float, ptr %v84, i64 40
  %v86 = load <8 x float>, ptr %v85, align 4
  %v87 = getelementptr float, ptr %v33, i64 0
  %v88 = getelementptr float, ptr %v87, i64 5
  %v89 = load float, ptr %v88
  %v90 = insertelement <8 x float> poison, float %v89, i32 0
  %v91 = shufflevector <8 x float> %v90, <8 x float> poison, <8 x i32> zeroinitializer
  %v92 = load <8 x float>, ptr %s18
  %v93 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v91, <8 x float> %v86, <8 x float> %v92)
  store <8 x float> %v93, ptr %s18
  call void asm sideeffect "", "~{memory}"()
  %v94 = getelementptr float, ptr %v20, i64 0
  %v95 = getelementptr float, ptr %v94, i64 48
  %v96 = load <8 x float>, ptr %v95, align 4
  %v97 = getelementptr float, ptr %v33, i64 0
  %v98 = getelementptr float, ptr %v97, i64 6
  %v99 = load float, ptr %v98
  %v100 = insertelement <8 x float> poison, float %v99, i32 0
  %v101 = shufflevector <8 x float> %v100, <8 x float> poison, <8 x i32> zeroinitializer
  %v102 = load <8 x float>, ptr %s18
  %v103 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v101, <8 x float> %v96, <8 x float> %v102)
  store <8 x float> %v103, ptr %s18
  call void asm sideeffect "", "~{memory}"()
  %v104 = getelementptr float, ptr %v20, i64 0
  %v105 = getelementptr float, ptr %v104, i64 56
  %v106 = load <8 x float>, ptr %v105, align 4
  %v107 = getelementptr float, ptr %v33, i64 0
  %v108 = getelementptr float, ptr %v107, i64 7
  %v109 = load float, ptr %v108
  %v110 = insertelement <8 x float> poison, float %v109, i32 0
  %v111 = shufflevector <8 x float> %v110, <8 x float> poison, <8 x i32> zeroinitializer
  %v112 = load <8 x float>, ptr %s18
  %v113 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v111, <8 x float> %v106, <8 x float> %v112)
  store <8 x float> %v113, ptr %s18
  %v114 = add i64 %v9, %l16.i
  %v115 = mul i64 %l14.i, 8
  %v116 = load <8 x float>, ptr %s18
  %v117 = mul i64 %v114, 8
  %v118 = add i64 %v117, %v115
  %v119 = getelementptr float, ptr %p2, i64 %v115
  %v120 = load <8 x float>, ptr %v119, align 4
  %v121 = fadd contract <8 x float> %v116, %v120
  %v122 = fcmp olt <8 x float> %v121, splat (float 0x0000000000000000)
  %v123 = select <8 x i1> %v122, <8 x float> splat (float 0x0000000000000000), <8 x float> %v121
  %v124 = fadd contract <8 x float> %v123, %v123
  %v125 = getelementptr float, ptr %p3, i64 %v118
  store <8 x float> %v123, ptr %v125, align 4
  %v126 = getelementptr float, ptr %p4, i64 %v118
  store <8 x float> %v124, ptr %v126, align 4
  %l16.next = add nuw nsw i64 %l16.i, 1
  %v127 = icmp slt i64 %l16.next, %v11
  br i1 %v127, label %l16.body, label %l16.end
l16.end:
  %l14.next = add nuw nsw i64 %l14.i, 1
  %v128 = icmp slt i64 %l14.next, %v13
  br i1 %v128, label %l14.body, label %l14.end
l14.end:
  %l1.next = add nuw nsw i64 %l1.i, 1
  %v129 = icmp slt i64 %l1.next, %last
  br i1 %v129, label %l1.body, label %l1.end
l1.end:
  ret void
}
