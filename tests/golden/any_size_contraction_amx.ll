; matmul nx16x32
; problem   batch=1 m=150 n=16 k=32 run=32 outer=1 nbytes=2 straight=1 b_constant=1 b_batched=0 b_along_k=0 window=1 images=1 out_y=1 out_x=150 taps_y=1 taps_x=1 stride_y=1 stride_x=1 channels=32 planes=0  (an example: each run decides its sizes)
; schedule  panels=1 pack_a=0 tiles_n=1 tile_m=16 pack_b=2 across=0 ahead=0 tiles_m=1
; engine    contraction/amx

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

@k.shapes = internal constant [64 x i8] [i8 1, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 64, i8 0, i8 64, i8 0, i8 64, i8 0, i8 64, i8 0, i8 64, i8 0, i8 64, i8 0, i8 64, i8 0, i8 64, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 16, i8 16, i8 16, i8 16, i8 16, i8 16, i8 16, i8 16, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0, i8 0], align 64
define internal void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %s1 = alloca [256 x i32], align 64
  %s2 = alloca [64 x i8], align 64
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %size1.at = getelementptr i64, ptr %sizes, i64 1
  %size1 = load i64, ptr %size1.at, !invariant.load !{}
  %size2.at = getelementptr i64, ptr %sizes, i64 2
  %size2 = load i64, ptr %size2.at, !invariant.load !{}
  %size3.at = getelementptr i64, ptr %sizes, i64 3
  %size3 = load i64, ptr %size3.at, !invariant.load !{}
  %size4.at = getelementptr i64, ptr %sizes, i64 4
  %size4 = load i64, ptr %size4.at, !invariant.load !{}
  %size5.at = getelementptr i64, ptr %sizes, i64 5
  %size5 = load i64, ptr %size5.at, !invariant.load !{}
  %size6.at = getelementptr i64, ptr %sizes, i64 6
  %size6 = load i64, ptr %size6.at, !invariant.load !{}
  %size7.at = getelementptr i64, ptr %sizes, i64 7
  %size7 = load i64, ptr %size7.at, !invariant.load !{}
  %size8.at = getelementptr i64, ptr %sizes, i64 8
  %size8 = load i64, ptr %size8.at, !invariant.load !{}
  %v3 = load <64 x i8>, ptr @k.shapes
  store <64 x i8> %v3, ptr %s2
  %v4 = trunc i64 %size0 to i8
  %v5 = getelementptr i8, ptr %s2, i64 48
  store i8 %v4, ptr %v5
  %v6 = trunc i64 %size0 to i8
  %v7 = getelementptr i8, ptr %s2, i64 49
  store i8 %v6, ptr %v7
  call void @llvm.x86.ldtilecfg(ptr %s2)
  %v9 = icmp slt i64 %first, %last
  br i1 %v9, label %l8.body, label %l8.end
l8.body:
  %l8.i = phi i64 [ %first, %entry ], [ %l8.next, %l29.end ]
  %v10 = and i64 %size1, 4294967295
  %v11 = and i64 %l8.i, 2147483647
  %v12 = mul i64 %v11, %v10
  %v13 = lshr i64 %v12, %size2
  %v14 = mul i64 %v13, %size3
  %v15 = sub i64 %l8.i, %v14
  %v16 = mul i64 %v15, %size0
  %v17 = call i64 @llvm.smin.i64(i64 %v16, i64 %size4)
  %v18 = mul i64 %v15, %size0
  %v19 = add i64 %v18, %size0
  %v20 = call i64 @llvm.smin.i64(i64 %v19, i64 %size5)
  %v21 = sub i64 %v20, %v17
  %v22 = getelementptr i16, ptr %p0, i64 0
  %v23 = mul i64 %v17, 64
  %v24 = getelementptr i8, ptr %v22, i64 %v23
  %v25 = sub i64 %size3, %v15
  %v26 = call i64 @llvm.smin.i64(i64 %v25, i64 1)
  %v27 = call i64 @llvm.smin.i64(i64 1, i64 1)
  %v28 = call i64 @llvm.smin.i64(i64 %v27, i64 1)
  %v30 = icmp slt i64 0, %v28
  br i1 %v30, label %l29.body, label %l29.end
l29.body:
  %l29.i = phi i64 [ 0, %l8.body ], [ %l29.next, %l33.end ]
  %v31 = mul i64 %l29.i, 1024
  %v32 = getelementptr i8, ptr %p2, i64 %v31
  %v34 = icmp slt i64 0, %v26
  br i1 %v34, label %l33.body, label %l33.end
l33.body:
  %l33.i = phi i64 [ 0, %l29.body ], [ %l33.next, %l49.end ]
  %v35 = add i64 %v15, %l33.i
  %v36 = mul i64 %v35, %size0
  %v37 = call i64 @llvm.smin.i64(i64 %v36, i64 %size4)
  %v38 = sub i64 %v37, %v17
  %v39 = mul i64 %v38, 64
  %v40 = getelementptr i8, ptr %v24, i64 %v39
  call void @llvm.x86.tilezero(i8 0)
  %v42 = icmp slt i64 0, 1
  br i1 %v42, label %l41.body, label %l41.end
l41.body:
  %l41.i = phi i64 [ 0, %l33.body ], [ %l41.next, %l41.body ]
  %v43 = mul i64 %l41.i, 1024
  %v44 = getelementptr i8, ptr %v32, i64 %v43
  %v45 = getelementptr i8, ptr %v40, i64 0
  call void @llvm.x86.tileloadd64(i8 1, ptr %v45, i64 64)
  %v46 = getelementptr i8, ptr %v44, i64 0
  call void @llvm.x86.tileloadd64(i8 2, ptr %v46, i64 64)
  call void @llvm.x86.tdpbf16ps(i8 0, i8 1, i8 2)
  %l41.next = add nuw nsw i64 %l41.i, 1
  %v47 = icmp slt i64 %l41.next, 1
  br i1 %v47, label %l41.body, label %l41.end
l41.end:
  %v48 = getelementptr i32, ptr %s1, i64 0
  call void @llvm.x86.tilestored64(i8 0, ptr %v48, i64 64)
  %v50 = icmp slt i64 0, %size0
  br i1 %v50, label %l49.body, label %l49.end
l49.body:
  %l49.i = phi i64 [ 0, %l41.end ], [ %l49.next, %w61.end ]
  %v51 = mul i64 %l33.i, %size0
  %v52 = add i64 %v51, %l49.i
  %v53 = mul i64 %v15, %size0
  %v54 = add i64 %v53, %v52
  %v55 = icmp slt i64 %v54, %size6
  %v56 = sub i64 %v54, %size7
  %v57 = select i1 %v55, i64 %v54, i64 %v56
  %v58 = icmp slt i64 %v54, %size6
  %v59 = icmp sge i64 %v54, %size8
  %v60 = or i1 %v58, %v59
  br i1 %v60, label %w61.then, label %w61.end
w61.then:
  %v62 = mul i64 %l49.i, 16
  %v63 = getelementptr i32, ptr %s1, i64 %v62
  %v64 = getelementptr i32, ptr %v63, i64 0
  %v65 = load <16 x float>, ptr %v64, align 64
  %v66 = mul i64 %v57, 16
  %v67 = getelementptr i16, ptr %p1, i64 0
  %v68 = load <16 x i16>, ptr %v67, align 2
  %v69 = zext <16 x i16> %v68 to <16 x i32>
  %v70 = shl <16 x i32> %v69, splat (i32 16)
  %v71 = bitcast <16 x i32> %v70 to <16 x float>
  %v72 = fadd contract <16 x float> %v65, %v71
  %v73 = fptrunc <16 x float> %v72 to <16 x bfloat>
  %v74 = bitcast <16 x bfloat> %v73 to <16 x i16>
  %v75 = zext <16 x i16> %v74 to <16 x i32>
  %v76 = shl <16 x i32> %v75, splat (i32 16)
  %v77 = bitcast <16 x i32> %v76 to <16 x float>
  %v78 = fcmp olt <16 x float> %v77, splat (float 0x0000000000000000)
  %v79 = select <16 x i1> %v78, <16 x float> splat (float 0x0000000000000000), <16 x float> %v77
  %v80 = fadd contract <16 x float> %v79, %v79
  %v81 = fptrunc <16 x float> %v80 to <16 x bfloat>
  %v82 = bitcast <16 x bfloat> %v81 to <16 x i16>
  %v83 = zext <16 x i16> %v82 to <16 x i32>
  %v84 = shl <16 x i32> %v83, splat (i32 16)
  %v85 = bitcast <16 x i32> %v84 to <16 x float>
  %v86 = bitcast <16 x float> %v79 to <16 x i32>
  %v87 = lshr <16 x i32> %v86, splat (i32 16)
  %v88 = trunc <16 x i32> %v87 to <16 x i16>
  %v89 = getelementptr i16, ptr %p3, i64 %v66
  store <16 x i16> %v88, ptr %v89, align 2
  %v90 = bitcast <16 x float> %v85 to <16 x i32>
  %v91 = lshr <16 x i32> %v90, splat (i32 16)
  %v92 = trunc <16 x i32> %v91 to <16 x i16>
  %v93 = getelementptr i16, ptr %p4, i64 %v66
  store <16 x i16> %v92, ptr %v93, align 2
  br label %w61.end
w61.end:
  %l49.next = add nuw nsw i64 %l49.i, 1
  %v94 = icmp slt i64 %l49.next, %size0
  br i1 %v94, label %l49.body, label %l49.end
l49.end:
  %l33.next = add nuw nsw i64 %l33.i, 1
  %v95 = icmp slt i64 %l33.next, %v26
  br i1 %v95, label %l33.body, label %l33.end
l33.end:
  %l29.next = add nuw nsw i64 %l29.i, 1
  %v96 = icmp slt i64 %l29.next, %v28
  br i1 %v96, label %l29.body, label %l29.end
l29.end:
  %l8.next = add nuw nsw i64 %l8.i, 1
  %v97 = icmp slt i64 %l8.next, %last
  br i1 %v97, label %l8.body, label %l8.end
l8.end:
  call void @llvm.x86.tilerelease()
  ret void
}
