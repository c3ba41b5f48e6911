; max pool
; problem   lead=150 out_y=2 out_x=2 channels=8 taps_y=2 taps_x=2 stride_x=2 dilation_x=1 low_x=0 high_x=4 weighted=0  (an example: each run decides its sizes)
; schedule  lanes=8 tile_x=1 vectors=1 tasks=64
; engine    pool/windows

define void @k(ptr %p0, ptr %p1, i64 %first, i64 %last) #0 {
entry:
  %s6 = alloca <8 x float>
  %v1 = icmp slt i64 %first, %last
  br i1 %v1, label %l2.body, label %l2.end
l2.body:
  %l2.i = phi i64 [ %first, %entry ], [ %l2.next, %l5.end ]
  %v3 = urem i64 %l2.i, 2
  %v4 = udiv i64 %l2.i, 2
  br i1 true, label %l5.body, label %l5.end
l5.body:
  %l5.i = phi i64 [ 0, %l2.body ], [ %l5.next, %w29.end ]
  store <8 x float> splat (float 0xFFF0000000000000), ptr %s6
  %v7 = mul i64 %v3, 2
  %v8 = icmp sle i64 0, %v7
  %v9 = icmp slt i64 %v7, 4
  %v10 = and i1 %v8, %v9
  br i1 %v10, label %w11.then, label %w11.end
w11.then:
  %v12 = mul i64 %l5.i, 2
  %v13 = mul i64 %v4, 128
  %v14 = mul i64 %v7, 32
  %v15 = add i64 %v13, %v14
  %v16 = mul i64 %v12, 8
  %v17 = add i64 %v15, %v16
  %v18 = getelementptr float, ptr %p0, i64 %v17
  %v19 = load <8 x float>, ptr %s6
  %v20 = load <8 x float>, ptr %v18, align 4
  %v21 = call nsz <8 x float> @llvm.maximum.v8f32(<8 x float> %v19, <8 x float> %v20)
  %v22 = getelementptr float, ptr %v18, i64 8
  %v23 = load <8 x float>, ptr %v22, align 4
  %v24 = call nsz <8 x float> @llvm.maximum.v8f32(<8 x float> %v21, <8 x float> %v23)
  store <8 x float> %v24, ptr %s6
  br label %w11.end
w11.end:
  %v25 = add i64 %v7, 1
  %v26 = icmp sle i64 0, %v25
  %v27 = icmp slt i64 %v25, 4
  %v28 = and i1 %v26, %v27
  br i1 %v28, label %w29.then, label %w29.end
w29.then:
  %v30 = mul i64 %l5.i, 2
  %v31 = mul i64 %v4, 128
  %v32 = mul i64 %v25, 32
  %v33 = add i64 %v31, %v32
  %v34 = mul i64 %v30, 8
  %v35 = add i64 %v33, %v34
  %v36 = getelementptr float, ptr %p0, i64 %v35
  %v37 = load <8 x float>, ptr %s6
  %v38 = load <8 x float>, ptr %v36, align 4
  %v39 = call nsz <8 x float> @llvm.maximum.v8f32(<8 x float> %v37, <8 x float> %v38)
  %v40 = getelementptr float, ptr %v36, i64 8
  %v41 = load <8 x float>, ptr %v40, align 4
  %v42 = call nsz <8 x float> @llvm.maximum.v8f32(<8 x float> %v39, <8 x float> %v41)
  store <8 x float> %v42, ptr %s6
  br label %w29.end
w29.end:
  %v43 = load <8 x float>, ptr %s6
  %v44 = mul i64 %v4, 32
  %v45 = mul i64 %v3, 16
  %v46 = add i64 %v44, %v45
  %v47 = mul i64 %l5.i, 8
  %v48 = add i64 %v46, %v47
  %v49 = getelementptr float, ptr %p1, i64 %v48
  store <8 x float> %v43, ptr %v49, align 4
  %l5.next = add nuw nsw i64 %l5.i, 1
  %v50 = icmp slt i64 %l5.next, 2
  br i1 %v50, label %l5.body, label %l5.end
l5.end:
  %l2.next = add nuw nsw i64 %l2.i, 1
  %v51 = icmp slt i64 %l2.next, %last
  br i1 %v51, label %l2.body, label %l2.end
l2.end:
  ret void
}
