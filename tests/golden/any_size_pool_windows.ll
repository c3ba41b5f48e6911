; max pool
; problem   lead=150 out_y=2 out_x=2 channels=8 taps_y=2 taps_x=2 stride_x=2 dilation_x=1 low_x=0 high_x=4 weighted=0  (an example: each run decides its sizes)
; schedule  lanes=8 tile_x=1 vectors=1 tasks=64
; engine    pool/windows

define void @k(ptr %p0, ptr %p1, i64 %first, i64 %last) #0 {
entry:
  %s9 = alloca <8 x float>
  %v2 = icmp slt i64 %first, %last
  br i1 %v2, label %l1.body, label %l1.end
l1.body:
  %l1.i = phi i64 [ %first, %entry ], [ %l1.next, %l5.end ]
  %v3 = urem i64 %l1.i, 2
  %v4 = udiv i64 %l1.i, 2
  %v6 = icmp slt i64 0, 2
  br i1 %v6, label %l5.body, label %l5.end
l5.body:
  %l5.i = phi i64 [ 0, %l1.body ], [ %l5.next, %l7.end ]
  %v8 = icmp slt i64 0, 8
  br i1 %v8, label %l7.body, label %l7.end
l7.body:
  %l7.i = phi i64 [ 0, %l5.body ], [ %l7.next, %w39.end ]
  store <8 x float> splat (float 0xFFF0000000000000), ptr %s9
  %v10 = mul i64 %v3, 2
  %v11 = icmp sle i64 0, %v10
  %v12 = icmp slt i64 %v10, 4
  %v13 = and i1 %v11, %v12
  br i1 %v13, label %w14.then, label %w14.end
w14.then:
  %v15 = mul i64 %l5.i, 2
  %v16 = mul i64 %v4, 128
  %v17 = mul i64 %v10, 32
  %v18 = add i64 %v16, %v17
  %v19 = mul i64 %v15, 8
  %v20 = add i64 %v18, %v19
  %v21 = add i64 %v20, %l7.i
  %v22 = getelementptr float, ptr %p0, i64 %v21
  %v23 = load <8 x float>, ptr %s9
  %v24 = load <8 x float>, ptr %v22, align 4
  %v25 = fcmp ogt <8 x float> %v23, %v24
  %v26 = fcmp uno <8 x float> %v23, %v23
  %v27 = select <8 x i1> %v25, <8 x float> %v23, <8 x float> %v24
  %v28 = select <8 x i1> %v26, <8 x float> %v23, <8 x float> %v27
  %v29 = getelementptr float, ptr %v22, i64 8
  %v30 = load <8 x float>, ptr %v29, align 4
  %v31 = fcmp ogt <8 x float> %v28, %v30
  %v32 = fcmp uno <8 x float> %v28, %v28
  %v33 = select <8 x i1> %v31, <8 x float> %v28, <8 x float> %v30
  %v34 = select <8 x i1> %v32, <8 x float> %v28, <8 x float> %v33
  store <8 x float> %v34, ptr %s9
  br label %w14.end
w14.end:
  %v35 = add i64 %v10, 1
  %v36 = icmp sle i64 0, %v35
  %v37 = icmp slt i64 %v35, 4
  %v38 = and i1 %v36, %v37
  br i1 %v38, label %w39.then, label %w39.end
w39.then:
  %v40 = mul i64 %l5.i, 2
  %v41 = mul i64 %v4, 128
  %v42 = mul i64 %v35, 32
  %v43 = add i64 %v41, %v42
  %v44 = mul i64 %v40, 8
  %v45 = add i64 %v43, %v44
  %v46 = add i64 %v45, %l7.i
  %v47 = getelementptr float, ptr %p0, i64 %v46
  %v48 = load <8 x float>, ptr %s9
  %v49 = load <8 x float>, ptr %v47, align 4
  %v50 = fcmp ogt <8 x float> %v48, %v49
  %v51 = fcmp uno <8 x float> %v48, %v48
  %v52 = select <8 x i1> %v50, <8 x float> %v48, <8 x float> %v49
  %v53 = select <8 x i1> %v51, <8 x float> %v48, <8 x float> %v52
  %v54 = getelementptr float, ptr %v47, i64 8
  %v55 = load <8 x float>, ptr %v54, align 4
  %v56 = fcmp ogt <8 x float> %v53, %v55
  %v57 = fcmp uno <8 x float> %v53, %v53
  %v58 = select <8 x i1> %v56, <8 x float> %v53, <8 x float> %v55
  %v59 = select <8 x i1> %v57, <8 x float> %v53, <8 x float> %v58
  store <8 x float> %v59, ptr %s9
  br label %w39.end
w39.end:
  %v60 = load <8 x float>, ptr %s9
  %v61 = mul i64 %v4, 32
  %v62 = mul i64 %v3, 16
  %v63 = add i64 %v61, %v62
  %v64 = mul i64 %l5.i, 8
  %v65 = add i64 %v63, %v64
  %v66 = add i64 %v65, %l7.i
  %v67 = getelementptr float, ptr %p1, i64 %v66
  store <8 x float> %v60, ptr %v67, align 4
  %l7.next = add nuw nsw i64 %l7.i, 8
  %v68 = icmp slt i64 %l7.next, 8
  br i1 %v68, label %l7.body, label %l7.end
l7.end:
  %l5.next = add nuw nsw i64 %l5.i, 1
  %v69 = icmp slt i64 %l5.next, 2
  br i1 %v69, label %l5.body, label %l5.end
l5.end:
  %l1.next = add nuw nsw i64 %l1.i, 1
  %v70 = icmp slt i64 %l1.next, %last
  br i1 %v70, label %l1.body, label %l1.end
l1.end:
  ret void
}
