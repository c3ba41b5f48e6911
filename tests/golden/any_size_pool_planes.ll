; max pool
; problem   lead=150 out_y=2 out_x=8 taps_y=2 taps_x=2 stride_y=2 dilation_y=1 stride_x=2 weighted=0 nbytes=4  (an example: each run decides its sizes)
; schedule  lanes=8 rows=1 vectors=1 tasks=64
; engine    pool/planes

define void @k(ptr %p0, ptr %p1, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %s1 = alloca [96 x float], align 64
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  br i1 true, label %l2.body, label %l2.end
l2.body:
  %l2.i = phi i64 [ 0, %entry ], [ %l2.next, %l2.body ]
  %v3 = getelementptr float, ptr %s1, i64 %l2.i
  store <8 x float> splat (float 0xFFF0000000000000), ptr %v3, align 4
  %l2.next = add nuw nsw i64 %l2.i, 8
  %v4 = icmp slt i64 %l2.next, 96
  br i1 %v4, label %l2.body, label %l2.end
l2.end:
  %v5 = icmp slt i64 %first, %last
  br i1 %v5, label %l6.body, label %l6.end
l6.body:
  %l6.i = phi i64 [ %first, %l2.end ], [ %l6.next, %l11.end ]
  %v7 = mul i64 %l6.i, 2
  %v8 = add i64 %v7, 2
  %v9 = call i64 @llvm.smin.i64(i64 %v8, i64 2)
  %v10 = icmp slt i64 0, %size0
  br i1 %v10, label %l11.body, label %l11.end
l11.body:
  %l11.i = phi i64 [ 0, %l6.body ], [ %l11.next, %l13.end ]
  %v12 = icmp slt i64 %v7, %v9
  br i1 %v12, label %l13.body, label %l13.end
l13.body:
  %l13.i = phi i64 [ %v7, %l11.body ], [ %l13.next, %w43.end ]
  %v14 = sub i64 %v9, %l13.i
  %v15 = call i64 @llvm.smin.i64(i64 %v14, i64 1)
  %v16 = mul i64 %l13.i, 2
  %v17 = add i64 %v16, 1
  %v18 = icmp ult i64 %v16, 4
  %v19 = icmp ult i64 %v17, 4
  %v20 = and i1 %v18, %v19
  br i1 %v20, label %w21.then, label %w21.end
w21.then:
  %v22 = getelementptr float, ptr %s1, i64 48
  %v23 = mul i64 %l11.i, 64
  %v24 = mul i64 %v16, 16
  %v25 = add i64 %v23, %v24
  %v26 = getelementptr float, ptr %p0, i64 %v25
  %v27 = load <8 x float>, ptr %v26, align 4
  %v28 = mul i64 %v17, 16
  %v29 = add i64 %v23, %v28
  %v30 = getelementptr float, ptr %p0, i64 %v29
  %v31 = load <8 x float>, ptr %v30, align 4
  %v32 = call nsz <8 x float> @llvm.maximum.v8f32(<8 x float> %v27, <8 x float> %v31)
  %v33 = add i64 %v25, 8
  %v34 = getelementptr float, ptr %p0, i64 %v33
  %v35 = load <8 x float>, ptr %v34, align 4
  %v36 = add i64 %v29, 8
  %v37 = getelementptr float, ptr %p0, i64 %v36
  %v38 = load <8 x float>, ptr %v37, align 4
  %v39 = call nsz <8 x float> @llvm.maximum.v8f32(<8 x float> %v35, <8 x float> %v38)
  %v40 = shufflevector <8 x float> %v32, <8 x float> %v39, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v41 = shufflevector <8 x float> %v32, <8 x float> %v39, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  store <8 x float> %v40, ptr %s1, align 4
  store <8 x float> %v41, ptr %v22, align 4
  br label %w21.end
w21.end:
  %v42 = xor i1 %v20, true
  br i1 %v42, label %w43.then, label %w43.end
w43.then:
  br i1 true, label %l44.body, label %l44.end
l44.body:
  %l44.i = phi i64 [ 0, %w43.then ], [ %l44.next, %l44.body ]
  %v45 = getelementptr float, ptr %s1, i64 %l44.i
  store <8 x float> splat (float 0xFFF0000000000000), ptr %v45, align 4
  %l44.next = add nuw nsw i64 %l44.i, 8
  %v46 = icmp slt i64 %l44.next, 96
  br i1 %v46, label %l44.body, label %l44.end
l44.end:
  br i1 true, label %l47.body, label %l47.end
l47.body:
  %l47.i = phi i64 [ 0, %l44.end ], [ %l47.next, %w50.end ]
  %v48 = add i64 %v16, %l47.i
  %v49 = icmp ult i64 %v48, 4
  br i1 %v49, label %w50.then, label %w50.end
w50.then:
  %v51 = getelementptr float, ptr %s1, i64 48
  %v52 = mul i64 %l11.i, 64
  %v53 = mul i64 %v48, 16
  %v54 = add i64 %v52, %v53
  %v55 = getelementptr float, ptr %p0, i64 %v54
  %v56 = load <8 x float>, ptr %v55, align 4
  %v57 = add i64 %v54, 8
  %v58 = getelementptr float, ptr %p0, i64 %v57
  %v59 = load <8 x float>, ptr %v58, align 4
  %v60 = shufflevector <8 x float> %v56, <8 x float> %v59, <8 x i32> <i32 0, i32 2, i32 4, i32 6, i32 8, i32 10, i32 12, i32 14>
  %v61 = shufflevector <8 x float> %v56, <8 x float> %v59, <8 x i32> <i32 1, i32 3, i32 5, i32 7, i32 9, i32 11, i32 13, i32 15>
  %v62 = load <8 x float>, ptr %s1, align 4
  %v63 = call nsz <8 x float> @llvm.maximum.v8f32(<8 x float> %v62, <8 x float> %v60)
  store <8 x float> %v63, ptr %s1, align 4
  %v64 = load <8 x float>, ptr %v51, align 4
  %v65 = call nsz <8 x float> @llvm.maximum.v8f32(<8 x float> %v64, <8 x float> %v61)
  store <8 x float> %v65, ptr %v51, align 4
  br label %w50.end
w50.end:
  %l47.next = add nuw nsw i64 %l47.i, 1
  %v66 = icmp slt i64 %l47.next, 2
  br i1 %v66, label %l47.body, label %l47.end
l47.end:
  br label %w43.end
w43.end:
  %v67 = load <8 x float>, ptr %s1, align 4
  %v68 = getelementptr float, ptr %s1, i64 48
  %v69 = load <8 x float>, ptr %v68, align 4
  %v70 = call nsz <8 x float> @llvm.maximum.v8f32(<8 x float> %v67, <8 x float> %v69)
  %v71 = mul i64 %l11.i, 16
  %v72 = mul i64 %l13.i, 8
  %v73 = add i64 %v71, %v72
  %v74 = getelementptr float, ptr %p1, i64 %v73
  store <8 x float> %v70, ptr %v74, align 4
  %l13.next = add nuw nsw i64 %l13.i, 1
  %v75 = icmp slt i64 %l13.next, %v9
  br i1 %v75, label %l13.body, label %l13.end
l13.end:
  %l11.next = add nuw nsw i64 %l11.i, 1
  %v76 = icmp slt i64 %l11.next, %size0
  br i1 %v76, label %l11.body, label %l11.end
l11.end:
  %l6.next = add nuw nsw i64 %l6.i, 1
  %v77 = icmp slt i64 %l6.next, %last
  br i1 %v77, label %l6.body, label %l6.end
l6.end:
  ret void
}
