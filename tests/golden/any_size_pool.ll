; max pool
; problem   points=4800  (an example: each run decides its sizes)
; schedule  lanes=8 tasks=64 unroll=0
; engine    pool

define void @k(ptr %p0, ptr %p1, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %s15 = alloca <8 x float>
  %v2 = icmp slt i64 %first, %last
  br i1 %v2, label %l1.body, label %l1.end
l1.body:
  %l1.i = phi i64 [ %first, %entry ], [ %l1.next, %l3.end ]
  %v4 = icmp slt i64 0, %size0
  br i1 %v4, label %l3.body, label %l3.end
l3.body:
  %l3.i = phi i64 [ 0, %l1.body ], [ %l3.next, %l5.end ]
  %v6 = icmp slt i64 0, 2
  br i1 %v6, label %l5.body, label %l5.end
l5.body:
  %l5.i = phi i64 [ 0, %l3.body ], [ %l5.next, %l7.end ]
  %v8 = icmp slt i64 0, 8
  br i1 %v8, label %l7.body, label %l7.end
l7.body:
  %l7.i = phi i64 [ 0, %l5.body ], [ %l7.next, %l16.end ]
  %v9 = mul i64 %l3.i, 16
  %v10 = mul i64 %l5.i, 8
  %v11 = add i64 %v9, %v10
  %v12 = add i64 %v11, %l7.i
  %v13 = mul i64 %l3.i, 64
  %v14 = mul i64 %l5.i, 16
  store <8 x float> splat (float 0xFFF0000000000000), ptr %s15
  %v17 = icmp slt i64 0, 2
  br i1 %v17, label %l16.body, label %l16.end
l16.body:
  %l16.i = phi i64 [ 0, %l7.body ], [ %l16.next, %l21.end ]
  %v18 = mul i64 %l16.i, 32
  %v19 = add i64 %v13, %v18
  %v20 = add i64 %v19, %v14
  %v22 = icmp slt i64 0, 2
  br i1 %v22, label %l21.body, label %l21.end
l21.body:
  %l21.i = phi i64 [ 0, %l16.body ], [ %l21.next, %l21.body ]
  %v23 = mul i64 %l21.i, 8
  %v24 = add i64 %v20, %v23
  %v25 = add i64 %v24, %l7.i
  %v26 = getelementptr float, ptr %p0, i64 %v25
  %v27 = load <8 x float>, ptr %v26, align 4
  %v28 = load <8 x float>, ptr %s15
  %v29 = fcmp ogt <8 x float> %v28, %v27
  %v30 = fcmp uno <8 x float> %v28, %v28
  %v31 = or <8 x i1> %v29, %v30
  %v32 = select <8 x i1> %v31, <8 x float> %v28, <8 x float> %v27
  store <8 x float> %v32, ptr %s15
  %l21.next = add nuw nsw i64 %l21.i, 1
  %v33 = icmp slt i64 %l21.next, 2
  br i1 %v33, label %l21.body, label %l21.end
l21.end:
  %l16.next = add nuw nsw i64 %l16.i, 1
  %v34 = icmp slt i64 %l16.next, 2
  br i1 %v34, label %l16.body, label %l16.end
l16.end:
  %v35 = load <8 x float>, ptr %s15
  %v36 = getelementptr float, ptr %p1, i64 %v12
  store <8 x float> %v35, ptr %v36, align 4
  %l7.next = add nuw nsw i64 %l7.i, 8
  %v37 = icmp slt i64 %l7.next, 8
  br i1 %v37, label %l7.body, label %l7.end
l7.end:
  %l5.next = add nuw nsw i64 %l5.i, 1
  %v38 = icmp slt i64 %l5.next, 2
  br i1 %v38, label %l5.body, label %l5.end
l5.end:
  %l3.next = add nuw nsw i64 %l3.i, 1
  %v39 = icmp slt i64 %l3.next, %size0
  br i1 %v39, label %l3.body, label %l3.end
l3.end:
  %l1.next = add nuw nsw i64 %l1.i, 1
  %v40 = icmp slt i64 %l1.next, %last
  br i1 %v40, label %l1.body, label %l1.end
l1.end:
  ret void
}
