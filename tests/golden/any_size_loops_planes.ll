; depthwise 3x3 1
; problem   lead=150 out_y=1 out_x=8 taps_y=3 taps_x=3 stride_y=1 dilation_y=1 stride_x=1 weighted=1 nbytes=4  (an example: each run decides its sizes)
; schedule  lanes=8 rows=1 vectors=1 tasks=64
; engine    loops/planes

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %p5, ptr %sizes, i64 %first, i64 %last) #1 {
  %mode = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  %before = load i32, ptr %mode
  %flushing = or i32 %before, 32832
  store i32 %flushing, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  call void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %p5, ptr %sizes, i64 %first, i64 %last)
  store i32 %before, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  ret void
}

define internal void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %p5, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %s1 = alloca [144 x float], align 64
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %v2 = icmp slt i64 %first, %last
  br i1 %v2, label %l3.body, label %l3.end
l3.body:
  %l3.i = phi i64 [ %first, %entry ], [ %l3.next, %l7.end ]
  %v4 = add i64 %l3.i, 1
  %v5 = call i64 @llvm.smin.i64(i64 %v4, i64 1)
  %v6 = icmp slt i64 0, %size0
  br i1 %v6, label %l7.body, label %l7.end
l7.body:
  %l7.i = phi i64 [ 0, %l3.body ], [ %l7.next, %l44.end ]
  %v8 = load float, ptr %p1
  %v9 = insertelement <8 x float> poison, float %v8, i32 0
  %v10 = shufflevector <8 x float> %v9, <8 x float> poison, <8 x i32> zeroinitializer
  %v11 = getelementptr float, ptr %p1, i64 1
  %v12 = load float, ptr %v11
  %v13 = insertelement <8 x float> poison, float %v12, i32 0
  %v14 = shufflevector <8 x float> %v13, <8 x float> poison, <8 x i32> zeroinitializer
  %v15 = getelementptr float, ptr %p1, i64 2
  %v16 = load float, ptr %v15
  %v17 = insertelement <8 x float> poison, float %v16, i32 0
  %v18 = shufflevector <8 x float> %v17, <8 x float> poison, <8 x i32> zeroinitializer
  %v19 = getelementptr float, ptr %p1, i64 3
  %v20 = load float, ptr %v19
  %v21 = insertelement <8 x float> poison, float %v20, i32 0
  %v22 = shufflevector <8 x float> %v21, <8 x float> poison, <8 x i32> zeroinitializer
  %v23 = getelementptr float, ptr %p1, i64 4
  %v24 = load float, ptr %v23
  %v25 = insertelement <8 x float> poison, float %v24, i32 0
  %v26 = shufflevector <8 x float> %v25, <8 x float> poison, <8 x i32> zeroinitializer
  %v27 = getelementptr float, ptr %p1, i64 5
  %v28 = load float, ptr %v27
  %v29 = insertelement <8 x float> poison, float %v28, i32 0
  %v30 = shufflevector <8 x float> %v29, <8 x float> poison, <8 x i32> zeroinitializer
  %v31 = getelementptr float, ptr %p1, i64 6
  %v32 = load float, ptr %v31
  %v33 = insertelement <8 x float> poison, float %v32, i32 0
  %v34 = shufflevector <8 x float> %v33, <8 x float> poison, <8 x i32> zeroinitializer
  %v35 = getelementptr float, ptr %p1, i64 7
  %v36 = load float, ptr %v35
  %v37 = insertelement <8 x float> poison, float %v36, i32 0
  %v38 = shufflevector <8 x float> %v37, <8 x float> poison, <8 x i32> zeroinitializer
  %v39 = getelementptr float, ptr %p1, i64 8
  %v40 = load float, ptr %v39
  %v41 = insertelement <8 x float> poison, float %v40, i32 0
  %v42 = shufflevector <8 x float> %v41, <8 x float> poison, <8 x i32> zeroinitializer
  %v43 = icmp slt i64 %l3.i, %v5
  br i1 %v43, label %l44.body, label %l44.end
l44.body:
  %l44.i = phi i64 [ %l3.i, %l7.body ], [ %l44.next, %l71.end ]
  %v45 = sub i64 %v5, %l44.i
  %v46 = call i64 @llvm.smin.i64(i64 %v45, i64 1)
  %v47 = sub i64 %v46, 1
  %v48 = add i64 %v47, 3
  %v49 = icmp slt i64 0, %v48
  br i1 %v49, label %l50.body, label %l50.end
l50.body:
  %l50.i = phi i64 [ 0, %l44.body ], [ %l50.next, %l50.body ]
  %v51 = add i64 %l44.i, %l50.i
  %v52 = mul i64 %l50.i, 48
  %v53 = getelementptr float, ptr %s1, i64 %v52
  %v54 = mul i64 %l7.i, 30
  %v55 = mul i64 %v51, 10
  %v56 = add i64 %v54, %v55
  %v57 = getelementptr float, ptr %p0, i64 %v56
  %v58 = load <8 x float>, ptr %v57, align 4
  %v59 = fcmp olt <8 x float> %v58, splat (float 0xBFF0000000000000)
  %v60 = select <8 x i1> %v59, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v58
  store <8 x float> %v60, ptr %v53, align 4
  %v61 = add i64 %v56, 8
  %v62 = getelementptr float, ptr %p0, i64 %v61
  %v63 = load <2 x float>, ptr %v62, align 4
  %v64 = shufflevector <2 x float> %v63, <2 x float> splat (float 0x0000000000000000), <8 x i32> <i32 0, i32 1, i32 2, i32 2, i32 2, i32 2, i32 2, i32 2>
  %v65 = fcmp olt <8 x float> %v64, splat (float 0xBFF0000000000000)
  %v66 = select <8 x i1> %v65, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v64
  %v67 = select <8 x i1> <i1 true, i1 true, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false>, <8 x float> %v66, <8 x float> splat (float 0x0000000000000000)
  %v68 = getelementptr float, ptr %v53, i64 8
  store <8 x float> %v67, ptr %v68, align 4
  %l50.next = add nuw nsw i64 %l50.i, 1
  %v69 = icmp slt i64 %l50.next, %v48
  br i1 %v69, label %l50.body, label %l50.end
l50.end:
  %v70 = icmp slt i64 0, %v46
  br i1 %v70, label %l71.body, label %l71.end
l71.body:
  %l71.i = phi i64 [ 0, %l50.end ], [ %l71.next, %l71.body ]
  %v72 = mul i64 %l71.i, 48
  %v73 = getelementptr float, ptr %s1, i64 %v72
  %v74 = add i64 %l44.i, %l71.i
  %v75 = load <8 x float>, ptr %v73, align 4
  %v76 = fmul contract <8 x float> %v75, %v10
  %v77 = getelementptr float, ptr %v73, i64 1
  %v78 = load <8 x float>, ptr %v77, align 4
  %v79 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v78, <8 x float> %v14, <8 x float> %v76)
  %v80 = getelementptr float, ptr %v73, i64 2
  %v81 = load <8 x float>, ptr %v80, align 4
  %v82 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v81, <8 x float> %v18, <8 x float> %v79)
  %v83 = getelementptr float, ptr %v73, i64 48
  %v84 = load <8 x float>, ptr %v83, align 4
  %v85 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v84, <8 x float> %v22, <8 x float> %v82)
  %v86 = getelementptr float, ptr %v73, i64 49
  %v87 = load <8 x float>, ptr %v86, align 4
  %v88 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v87, <8 x float> %v26, <8 x float> %v85)
  %v89 = getelementptr float, ptr %v73, i64 50
  %v90 = load <8 x float>, ptr %v89, align 4
  %v91 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v90, <8 x float> %v30, <8 x float> %v88)
  %v92 = getelementptr float, ptr %v73, i64 96
  %v93 = load <8 x float>, ptr %v92, align 4
  %v94 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v93, <8 x float> %v34, <8 x float> %v91)
  %v95 = getelementptr float, ptr %v73, i64 97
  %v96 = load <8 x float>, ptr %v95, align 4
  %v97 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v96, <8 x float> %v38, <8 x float> %v94)
  %v98 = getelementptr float, ptr %v73, i64 98
  %v99 = load <8 x float>, ptr %v98, align 4
  %v100 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v99, <8 x float> %v42, <8 x float> %v97)
  %v101 = mul i64 %l7.i, 8
  %v102 = load float, ptr %p2
  %v103 = insertelement <8 x float> poison, float %v102, i32 0
  %v104 = shufflevector <8 x float> %v103, <8 x float> poison, <8 x i32> zeroinitializer
  %v105 = fadd contract <8 x float> %v100, %v104
  %v106 = fcmp olt <8 x float> %v105, splat (float 0x0000000000000000)
  %v107 = select <8 x i1> %v106, <8 x float> splat (float 0x0000000000000000), <8 x float> %v105
  %v108 = getelementptr float, ptr %p3, i64 %v101
  %v109 = load <8 x float>, ptr %v108, align 4
  %v110 = fadd contract <8 x float> %v107, %v109
  %v111 = getelementptr float, ptr %p4, i64 %v101
  store <8 x float> %v110, ptr %v111, align 4
  %v112 = getelementptr float, ptr %p5, i64 %v101
  store <8 x float> %v100, ptr %v112, align 4
  %l71.next = add nuw nsw i64 %l71.i, 1
  %v113 = icmp slt i64 %l71.next, %v46
  br i1 %v113, label %l71.body, label %l71.end
l71.end:
  %l44.next = add nuw nsw i64 %l44.i, 1
  %v114 = icmp slt i64 %l44.next, %v5
  br i1 %v114, label %l44.body, label %l44.end
l44.end:
  %l7.next = add nuw nsw i64 %l7.i, 1
  %v115 = icmp slt i64 %l7.next, %size0
  br i1 %v115, label %l7.body, label %l7.end
l7.end:
  %l3.next = add nuw nsw i64 %l3.i, 1
  %v116 = icmp slt i64 %l3.next, %last
  br i1 %v116, label %l3.body, label %l3.end
l3.end:
  ret void
}
