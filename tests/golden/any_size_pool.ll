; max pool
; problem   points=4800  (an example: each run decides its sizes)
; schedule  lanes=8 tasks=64 unroll=0
; engine    pool

define void @k(ptr %p0, ptr %p1, i64 %first, i64 %last) #0 {
entry:
  %s13 = alloca <8 x float>
  %v2 = icmp slt i64 %first, %last
  br i1 %v2, label %l1.body, label %l1.end
l1.body:
  %l1.i = phi i64 [ %first, %entry ], [ %l1.next, %l3.end ]
  %v4 = icmp slt i64 0, 2
  br i1 %v4, label %l3.body, label %l3.end
l3.body:
  %l3.i = phi i64 [ 0, %l1.body ], [ %l3.next, %l5.end ]
  %v6 = icmp slt i64 0, 8
  br i1 %v6, label %l5.body, label %l5.end
l5.body:
  %l5.i = phi i64 [ 0, %l3.body ], [ %l5.next, %l14.end ]
  %v7 = mul i64 %l1.i, 16
  %v8 = mul i64 %l3.i, 8
  %v9 = add i64 %v7, %v8
  %v10 = add i64 %v9, %l5.i
  %v11 = mul i64 %l1.i, 64
  %v12 = mul i64 %l3.i, 16
  store <8 x float> splat (float 0xFFF0000000000000), ptr %s13
  %v15 = icmp slt i64 0, 2
  br i1 %v15, label %l14.body, label %l14.end
l14.body:
  %l14.i = phi i64 [ 0, %l5.body ], [ %l14.next, %l19.end ]
  %v16 = mul i64 %l14.i, 32
  %v17 = add i64 %v11, %v16
  %v18 = add i64 %v17, %v12
  %v20 = icmp slt i64 0, 2
  br i1 %v20, label %l19.body, label %l19.end
l19.body:
  %l19.i = phi i64 [ 0, %l14.body ], [ %l19.next, %l19.body ]
  %v21 = mul i64 %l19.i, 8
  %v22 = add i64 %v18, %v21
  %v23 = add i64 %v22, %l5.i
  %v24 = getelementptr float, ptr %p0, i64 %v23
  %v25 = load <8 x float>, ptr %v24, align 4
  %v26 = load <8 x float>, ptr %s13
  %v27 = fcmp ogt <8 x float> %v26, %v25
  %v28 = fcmp uno <8 x float> %v26, %v26
  %v29 = select <8 x i1> %v27, <8 x float> %v26, <8 x float> %v25
  %v30 = select <8 x i1> %v28, <8 x float> %v26, <8 x float> %v29
  store <8 x float> %v30, ptr %s13
  %l19.next = add nuw nsw i64 %l19.i, 1
  %v31 = icmp slt i64 %l19.next, 2
  br i1 %v31, label %l19.body, label %l19.end
l19.end:
  %l14.next = add nuw nsw i64 %l14.i, 1
  %v32 = icmp slt i64 %l14.next, 2
  br i1 %v32, label %l14.body, label %l14.end
l14.end:
  %v33 = load <8 x float>, ptr %s13
  %v34 = getelementptr float, ptr %p1, i64 %v10
  store <8 x float> %v33, ptr %v34, align 4
  %l5.next = add nuw nsw i64 %l5.i, 8
  %v35 = icmp slt i64 %l5.next, 8
  br i1 %v35, label %l5.body, label %l5.end
l5.end:
  %l3.next = add nuw nsw i64 %l3.i, 1
  %v36 = icmp slt i64 %l3.next, 2
  br i1 %v36, label %l3.body, label %l3.end
l3.end:
  %l1.next = add nuw nsw i64 %l1.i, 1
  %v37 = icmp slt i64 %l1.next, %last
  br i1 %v37, label %l1.body, label %l1.end
l1.end:
  ret void
}
