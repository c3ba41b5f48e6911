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
  %v6 = getelementptr i8, ptr %s2, i64 49
  store i8 %v4, ptr %v6
  call void @llvm.x86.ldtilecfg(ptr %s2)
  %v7 = icmp slt i64 %first, %last
  br i1 %v7, label %l8.body, label %l8.end
l8.body:
  %l8.i = phi i64 [ %first, %entry ], [ %l8.next, %l25.end ]
  %v9 = and i64 %size1, 4294967295
  %v10 = and i64 %l8.i, 2147483647
  %v11 = mul i64 %v10, %v9
  %v12 = lshr i64 %v11, %size2
  %v13 = mul i64 %v12, %size3
  %v14 = sub i64 %l8.i, %v13
  %v15 = mul i64 %v14, %size0
  %v16 = call i64 @llvm.smin.i64(i64 %v15, i64 %size4)
  %v17 = add i64 %v15, %size0
  %v18 = call i64 @llvm.smin.i64(i64 %v17, i64 %size5)
  %v19 = sub i64 %v18, %v16
  %v20 = mul i64 %v16, 64
  %v21 = getelementptr i8, ptr %p0, i64 %v20
  %v22 = sub i64 %size3, %v14
  %v23 = call i64 @llvm.smin.i64(i64 %v22, i64 1)
  %v24 = icmp slt i64 0, %v23
  br i1 %v24, label %l25.body, label %l25.end
l25.body:
  %l25.i = phi i64 [ 0, %l8.body ], [ %l25.next, %l33.end ]
  %v26 = add i64 %v14, %l25.i
  %v27 = mul i64 %v26, %size0
  %v28 = call i64 @llvm.smin.i64(i64 %v27, i64 %size4)
  %v29 = sub i64 %v28, %v16
  %v30 = mul i64 %v29, 64
  %v31 = getelementptr i8, ptr %v21, i64 %v30
  call void @llvm.x86.tilezero(i8 0)
  call void @llvm.x86.tileloadd64(i8 1, ptr %v31, i64 64)
  call void @llvm.x86.tileloadd64(i8 2, ptr %p2, i64 64)
  call void @llvm.x86.tdpbf16ps(i8 0, i8 1, i8 2)
  call void @llvm.x86.tilestored64(i8 0, ptr %s1, i64 64)
  %v32 = icmp slt i64 0, %size0
  br i1 %v32, label %l33.body, label %l33.end
l33.body:
  %l33.i = phi i64 [ 0, %l25.body ], [ %l33.next, %w42.end ]
  %v34 = mul i64 %l25.i, %size0
  %v35 = add i64 %v34, %l33.i
  %v36 = add i64 %v15, %v35
  %v37 = icmp slt i64 %v36, %size6
  %v38 = sub i64 %v36, %size7
  %v39 = select i1 %v37, i64 %v36, i64 %v38
  %v40 = icmp sge i64 %v36, %size8
  %v41 = or i1 %v37, %v40
  br i1 %v41, label %w42.then, label %w42.end
w42.then:
  %v43 = mul i64 %l33.i, 16
  %v44 = getelementptr i32, ptr %s1, i64 %v43
  %v45 = load <16 x float>, ptr %v44, align 64
  %v46 = mul i64 %v39, 16
  %v47 = load <16 x i16>, ptr %p1, align 2
  %v48 = zext <16 x i16> %v47 to <16 x i32>
  %v49 = shl <16 x i32> %v48, splat (i32 16)
  %v50 = bitcast <16 x i32> %v49 to <16 x float>
  %v51 = fadd contract <16 x float> %v45, %v50
  %v52 = fptrunc <16 x float> %v51 to <16 x bfloat>
  %v53 = bitcast <16 x bfloat> %v52 to <16 x i16>
  %v54 = zext <16 x i16> %v53 to <16 x i32>
  %v55 = shl <16 x i32> %v54, splat (i32 16)
  %v56 = bitcast <16 x i32> %v55 to <16 x float>
  %v57 = fcmp olt <16 x float> %v56, splat (float 0x0000000000000000)
  %v58 = select <16 x i1> %v57, <16 x float> splat (float 0x0000000000000000), <16 x float> %v56
  %v59 = fadd contract <16 x float> %v58, %v58
  %v60 = fptrunc <16 x float> %v59 to <16 x bfloat>
  %v61 = bitcast <16 x bfloat> %v60 to <16 x i16>
  %v62 = zext <16 x i16> %v61 to <16 x i32>
  %v63 = shl <16 x i32> %v62, splat (i32 16)
  %v64 = bitcast <16 x i32> %v63 to <16 x float>
  %v65 = bitcast <16 x float> %v58 to <16 x i32>
  %v66 = lshr <16 x i32> %v65, splat (i32 16)
  %v67 = trunc <16 x i32> %v66 to <16 x i16>
  %v68 = getelementptr i16, ptr %p3, i64 %v46
  store <16 x i16> %v67, ptr %v68, align 2
  %v69 = bitcast <16 x float> %v64 to <16 x i32>
  %v70 = lshr <16 x i32> %v69, splat (i32 16)
  %v71 = trunc <16 x i32> %v70 to <16 x i16>
  %v72 = getelementptr i16, ptr %p4, i64 %v46
  store <16 x i16> %v71, ptr %v72, align 2
  br label %w42.end
w42.end:
  %l33.next = add nuw nsw i64 %l33.i, 1
  %v73 = icmp slt i64 %l33.next, %size0
  br i1 %v73, label %l33.body, label %l33.end
l33.end:
  %l25.next = add nuw nsw i64 %l25.i, 1
  %v74 = icmp slt i64 %l25.next, %v23
  br i1 %v74, label %l25.body, label %l25.end
l25.end:
  %l8.next = add nuw nsw i64 %l8.i, 1
  %v75 = icmp slt i64 %l8.next, %last
  br i1 %v75, label %l8.body, label %l8.end
l8.end:
  call void @llvm.x86.tilerelease()
  ret void
}
